//! Quantiles of a histogram.

/// A value, such as a span in seconds, that a part of all reached at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quantile {
    About(f64),
    /// More than the greatest bound that is finite.
    Beyond(f64),
}

impl Quantile {
    /// The value below which this part is, 0 to 1, from how many were at most each bound: between two bounds in proportion.
    /// The bounds rise, and all are below the last one. `None` of nothing.
    pub fn of(counts: impl Iterator<Item = (f64, f64)> + Clone, part: f64) -> Option<Quantile> {
        let (_, total) = counts.clone().last()?;
        let wanted = total * part;
        let (mut below, mut under) = (0.0, 0.0);
        for (bound, count) in counts {
            if count >= wanted && total > 0.0 {
                let within = if count > under { (wanted - under) / (count - under) } else { 1.0 };
                let about = Quantile::About(below + (bound - below) * within);
                return Some(if bound.is_infinite() { Quantile::Beyond(below) } else { about });
            }
            (below, under) = (bound, count);
        }
        None
    }

    /// The value, or the bound that is known to be less.
    pub fn at_least(self) -> f64 {
        match self {
            Quantile::About(value) | Quantile::Beyond(value) => value,
        }
    }
}
