//! Scenarios in Rust instead of TOML.
//!
//! The methods here put together the very [`model`](crate::model) that a scenario file is read into, so both are
//! checked, carried out and reported alike, and the documentation of a field in the model holds for the method of
//! its name. What a file does with parameters, a matrix and includes, a program does with variables, loops and
//! functions.
//!
//! ```
//! use scenarios::Scenario;
//! use scenarios::build::Nic;
//! use scenarios::model::{JsonExpectation, Namespace, Step, Stream};
//!
//! let scenario = Scenario::builder("two-ports", "Two gve ports exchange a stream.")
//!     .nic(Nic::new("gve").option("mtu", 1500))
//!     .nic(Nic::new("gve"))
//!     .namespace("left", Namespace::of("eth0").address("2001:db8::1/64").mtu(1500))
//!     .namespace("right", Namespace::of("eth1").address("2001:db8::2/64"))
//!     .step(
//!         Step::run("ip -json link show eth0")
//!             .in_namespace("left")
//!             .json(JsonExpectation::at("0.mtu").equals(1500)),
//!     )
//!     .step(Step::stream(Stream::new("left", "right", "2001:db8::2", 64 << 20)))
//!     .build()?;
//! assert_eq!(scenario.steps.len(), 2);
//! # Ok::<(), scenarios::LoadError>(())
//! ```

mod expect;
mod machine;
mod step;
mod wait;

use toml::Spanned;

use crate::check;
use crate::matrix::DEFAULT_KERNEL;
use crate::model::{Expect, Guest, LinkSpec, Namespace, NicTable, Scenario, Step, Table};
use crate::source::LoadError;

pub use machine::Nic;

/// A scenario that is being put together.
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    scenario: Scenario,
}

impl Scenario {
    /// Begins a scenario with its name in results, and a sentence about what it shows.
    pub fn builder(name: impl Into<String>, description: impl Into<String>) -> Builder {
        let scenario = Scenario {
            name: name.into(),
            description: description.into(),
            kernel: DEFAULT_KERNEL.to_owned(),
            ..Scenario::default()
        };
        Builder { scenario }
    }
}

impl Builder {
    /// The kernel of guests that do not name one, such as `debian:6.12`.
    pub fn kernel(mut self, name: impl Into<String>) -> Builder {
        self.scenario.kernel = name.into();
        self
    }

    /// Adds a guest. Without any there is one with the usual settings.
    pub fn guest(mut self, guest: Guest) -> Builder {
        self.scenario.guest.push(unplaced(guest));
        self
    }

    /// Adds a NIC: the next of eth0, eth1, ... of its guest.
    pub fn nic(mut self, nic: impl Into<NicTable>) -> Builder {
        self.scenario.nics.push(unplaced(nic));
        self
    }

    /// Says what a link is like.
    pub fn link(mut self, name: impl Into<String>, link: LinkSpec) -> Builder {
        self.scenario.links.insert(name.into(), unplaced(link));
        self
    }

    /// Adds a namespace.
    pub fn namespace(mut self, name: impl Into<String>, namespace: Namespace) -> Builder {
        self.scenario.namespaces.insert(name.into(), unplaced(namespace));
        self
    }

    /// Adds a step behind those that there are.
    pub fn step(mut self, step: Step) -> Builder {
        self.scenario.steps.push(unplaced(step));
        self
    }

    /// Says what must hold at the end.
    pub fn expect(mut self, expect: Expect) -> Builder {
        self.scenario.expect = expect;
        self
    }

    /// Adds a table to be shown with the results.
    pub fn table(mut self, table: Table) -> Builder {
        self.scenario.tables.push(unplaced(table));
        self
    }

    /// The scenario, checked as a file is.
    ///
    /// # Errors
    /// When it contradicts itself.
    pub fn build(self) -> Result<Scenario, LoadError> {
        match check::check(&self.scenario) {
            Ok(()) => Ok(self.scenario),
            Err(wrong) => Err(self.scenario.mistake(wrong.span, wrong.message, wrong.help)),
        }
    }
}

/// A value that stands in no file.
pub(crate) fn unplaced<T>(value: impl Into<T>) -> Spanned<T> {
    Spanned::new(0..0, value.into())
}

fn unplaced_all<T, I: Into<T>>(values: impl IntoIterator<Item = I>) -> Vec<Spanned<T>> {
    values.into_iter().map(unplaced).collect()
}
