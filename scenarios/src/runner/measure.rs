//! Measuring: numbers from output, counters and sizes.

use super::world::World;
use crate::judge::{counter_value, difference, measure_sizes, number_at, port_sizes};
use crate::lab::PortSizes;
use crate::model::{Measure, MeasureSource, SizeMeasure, Step};
use crate::outcome::Check;

/// What there was before a step.
#[derive(Debug, Default)]
pub(super) struct Before {
    counters: Vec<(String, u64)>,
    sizes: Vec<PortSizes>,
}

impl Before {
    /// Takes down what `step` will want to compare with.
    pub(super) fn of(step: &Step, world: &World<'_>) -> Before {
        let during = step
            .measure
            .values()
            .any(|measure| matches!(measure.get_ref(), Measure::Source(source) if source.during));
        if !during {
            return Before::default();
        }
        Before { counters: world.lab.counters(), sizes: world.lab.sizes() }
    }

    /// Keeps all that `step` measures; what could not be measured is a check that fails.
    pub(super) fn measure(
        &self,
        step: &Step,
        title: &str,
        output: Option<&[u8]>,
        world: &mut World<'_>,
    ) -> Vec<Check> {
        let mut checks = Vec::new();
        for (name, measure) in &step.measure {
            let value = match measure.get_ref() {
                Measure::Json(path) => number_at(path, output.unwrap_or_default()),
                Measure::Source(source) => self.source(source, world),
            };
            match value {
                Ok(value) => world.measure(name, value),
                Err(reason) => checks.push(Check::fail(format!("{title}: {name} is measured"), reason)),
            }
        }
        checks
    }

    fn source(&self, source: &MeasureSource, world: &World<'_>) -> Result<f64, String> {
        if let Some(counter) = &source.counter {
            let value = |counters: &[(String, u64)]| counter_value(counter, counters);
            let now = value(&world.lab.counters()).ok_or_else(|| format!("there is no counter {counter}"))?;
            let before = if source.during { value(&self.counters).unwrap_or(0) } else { 0 };
            return Ok(now as f64 - before as f64);
        }
        let port = source.port.as_deref().unwrap_or_default();
        let mut sizes = port_sizes(port, source.stage, &world.lab.sizes())?;
        if source.during {
            sizes = difference(&port_sizes(port, source.stage, &self.sizes)?, &sizes);
        }
        measure_sizes(&sizes, source.sizes.unwrap_or(SizeMeasure::Count))
            .ok_or_else(|| format!("there are no frames of {port} {}", source.stage))
    }
}
