/// Shares `amount` by max-min fairness: no transfer gets more than it demands, and the others share the rest equally. A transfer that
/// demands more than an equal part gets at least an equal part.
///
/// - Parameter demands: each 0 or more; `.infinity`: as much as possible.
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
