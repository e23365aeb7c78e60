/// Shares `amount` among those who want it: nobody gets more than it wants, and what one leaves goes to the others in equal parts (max-min
/// fairness). Who wants more than an equal part gets at least that.
///
/// - Parameter demands: what each wants, 0 or more; `.infinity`: all it can get.
/// - Returns: a share for each demand, in the same order.
func fairShares(of amount: Double, among demands: [Double]) -> [Double] {
    var shares = [Double](repeating: 0, count: demands.count)
    var (rest, left) = (amount, demands.count)
    for index in demands.indices.sorted(by: { demands[$0] < demands[$1] }) {
        shares[index] = min(demands[index], rest / Double(left))
        rest = max(0, rest - shares[index])
        left -= 1
    }
    return shares
}
