//! Sizes of frames.

use nicvisor_core::Sizes;

use crate::lab::PortSizes;
use crate::model::{SizeMeasure, Stage};
use crate::vocabulary::matches;

/// The sizes of all frames of the ports that `pattern` stands for.
///
/// # Errors
/// When there is no such port, or its device does not tell.
pub(crate) fn port_sizes(pattern: &str, stage: Stage, all: &[PortSizes]) -> Result<Sizes, String> {
    let mut sum: Option<Sizes> = None;
    for port in all.iter().filter(|port| matches(pattern, &port.port)) {
        let sizes = match stage {
            Stage::Wire => Some(&port.wire),
            Stage::Handed => port.handed.as_ref(),
        };
        let sizes = sizes.ok_or_else(|| format!("{} does not tell what it was handed", port.port))?;
        sum.get_or_insert_default().add(sizes);
    }
    sum.ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|port| port.port.as_str()).collect();
        format!("there is no port {pattern}; there are {}", known.join(", "))
    })
}

/// What came to `before` until it was `after`.
pub(crate) fn difference(before: &Sizes, after: &Sizes) -> Sizes {
    let mut new = Sizes::default();
    for (size, count) in &after.exact {
        let fresh = count - before.exact.get(size).copied().unwrap_or(0).min(*count);
        new.record_many(*size as usize, fresh);
    }
    new.inexact = after.inexact.saturating_sub(before.inexact);
    new
}

/// A number about sizes; `None` when there are no frames that it could be about.
pub(crate) fn measure_sizes(sizes: &Sizes, what: SizeMeasure) -> Option<f64> {
    match what {
        SizeMeasure::Count => Some(sizes.count() as f64),
        SizeMeasure::Largest => sizes.largest().map(|size| size as f64),
        SizeMeasure::Smallest => sizes.smallest().map(|size| size as f64),
        SizeMeasure::Mean => sizes.mean(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(list: &[usize]) -> Sizes {
        let mut sizes = Sizes::default();
        list.iter().for_each(|size| sizes.record(*size));
        sizes
    }

    #[test]
    fn ports_are_added_up() {
        let port = |name: &str, wire: &[usize], handed: Option<&[usize]>| PortSizes {
            port: name.into(),
            handed: handed.map(sizes),
            wire: sizes(wire),
        };
        let all = [port("gve0", &[60, 1514], Some(&[185_000])), port("gve1", &[1514], None)];
        let wire = port_sizes("gve*", Stage::Wire, &all).unwrap();
        assert_eq!((wire.count(), wire.largest(), wire.smallest()), (3, Some(1514), Some(60)));
        assert_eq!(port_sizes("gve0", Stage::Handed, &all).unwrap().largest(), Some(185_000));
        assert!(port_sizes("gve1", Stage::Handed, &all).unwrap_err().contains("does not tell"));
        assert!(port_sizes("gve2", Stage::Wire, &all).unwrap_err().contains("gve0, gve1"));
    }

    #[test]
    fn what_is_new_is_told_from_what_was() {
        let new = difference(&sizes(&[60, 1514]), &sizes(&[60, 1514, 1514, 200]));
        assert_eq!(new, sizes(&[1514, 200]));
        assert_eq!(measure_sizes(&new, SizeMeasure::Smallest), Some(200.0));
        assert_eq!(measure_sizes(&new, SizeMeasure::Mean), Some(857.0));
        assert_eq!(measure_sizes(&sizes(&[]), SizeMeasure::Largest), None);
    }
}
