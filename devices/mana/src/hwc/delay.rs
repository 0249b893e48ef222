//! Requests that faults put off.

use nicvisor_core::fault::CommandAction;
use nicvisor_core::{Context, Time};
use serde::{Deserialize, Serialize};

use crate::control::Request;
use crate::device::Mana;

/// A request that is carried out later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Delayed {
    /// `None` for when faults are lifted.
    pub(super) due: Option<Time>,
    pub(super) action: CommandAction,
    pub(super) request: Vec<u8>,
}

impl Mana {
    /// When the next request that was put off is due.
    pub(crate) fn request_deadline(&self) -> Option<Time> {
        self.state.channel.delayed.iter().filter_map(|delayed| delayed.due).min()
    }

    /// Carries out the requests that are due.
    pub(crate) fn resume_requests(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        let is_due = |delayed: &mut Delayed| delayed.due.is_some_and(|due| due <= now);
        let due: Vec<Delayed> = self.state.channel.delayed.extract_if(.., is_due).collect();
        self.carry_out_delayed(context, due);
    }

    /// Faults were lifted: carries out all that were put off.
    pub(crate) fn resume_all_requests(&mut self, context: &mut Context<'_>) {
        let all = std::mem::take(&mut self.state.channel.delayed);
        self.carry_out_delayed(context, all);
    }

    fn carry_out_delayed(&mut self, context: &mut Context<'_>, delayed: Vec<Delayed>) {
        for delayed in delayed {
            if let Some(request) = Request::parse(&delayed.request) {
                self.carry_out(context, &request, &delayed.action);
            }
        }
    }
}
