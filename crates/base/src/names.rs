//! Names that nobody has yet.

/// The first of `named(1)`, `named(2)`, … that is not taken; it is found as soon as all that are have been
/// tried.
pub fn numbered(taken: impl Fn(&str) -> bool, named: impl Fn(usize) -> String) -> String {
    (1..usize::MAX).map(named).find(|name| !taken(name)).unwrap_or_default()
}

/// `wanted` itself, or with the lowest number from 2 behind a `dash` that makes it one that is not taken.
pub fn unused(wanted: &str, dash: char, taken: impl Fn(&str) -> bool) -> String {
    numbered(taken, |n| if n == 1 { wanted.to_owned() } else { format!("{wanted}{dash}{n}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_number_that_is_free_is_taken() {
        let taken = |name: &str| ["x-1", "x-2", "x-4", "y", "y 2"].contains(&name);
        assert_eq!(numbered(taken, |n| format!("x-{n}")), "x-3");
        assert_eq!(unused("x", '-', taken), "x");
        assert_eq!(unused("y", ' ', taken), "y 3");
        assert_eq!(unused("y", '-', taken), "y-2");
    }
}
