public import EventLoop
public import Scheduling

extension StepTime: StepLimit {}
