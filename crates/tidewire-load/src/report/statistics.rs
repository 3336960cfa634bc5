//! Statistical formulas that several figures need.

/// The 97.5 % quantile of Student's distribution: Abramowitz and Stegun, 26.7.5. Correct to three
/// digits from nine degrees of freedom on.
pub(crate) fn student_97_5(freedom: f64) -> f64 {
    let z: f64 = NORMAL_97_5;
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
}

/// The 97.5 % quantile of the normal distribution.
pub(crate) const NORMAL_97_5: f64 = 1.959_964;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantiles_of_student_are_those_of_the_tables() {
        for (freedom, expected) in [(9.0, 2.262), (29.0, 2.045), (119.0, 1.980)] {
            let found = student_97_5(freedom);
            assert!((found - expected).abs() < 0.002, "{found} for {freedom}");
        }
    }
}
