//! Flow steering rules: packets that match one go to its RX queue, whatever their hash.

use std::collections::BTreeMap;

use nicvisor_core::Context;
use nicvisor_core::fault::CommandAction;
use serde::{Deserialize, Serialize};
use zerocopy::IntoBytes;

use super::{Failure, write_answer};
use crate::device::Gve;
use crate::features::Feature;
use crate::wire::admin::{
    CONFIGURE_FLOW_RULE, ConfigureFlowRule, ExtendedCommand, FlowRule, FlowSpec, QueriedFlowRule,
    QueryFlowRules, QueryFlowRulesDescriptor, Status,
};

/// The rules by location; the lowest that matches wins.
pub(crate) type FlowRules = BTreeMap<u32, Steering>;

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Steering {
    kind: u16,
    queue: u16,
    key: Flow,
    mask: Flow,
}

/// What rules look at, or a mask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Flow {
    pub(crate) source: [u8; 16],
    pub(crate) destination: [u8; 16],
    /// Both ports, or the security parameter index.
    pub(crate) ports: u32,
    /// Type of service or traffic class.
    pub(crate) class: u8,
}

/// A packet as rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) ipv6: bool,
    pub(crate) protocol: u8,
    pub(crate) flow: Flow,
}

impl Steering {
    /// The RX queue for `packet`, if the rule matches.
    pub(crate) fn queue(&self, packet: &Packet) -> Option<u16> {
        let kind = FLOW_PROTOCOLS.iter().position(|protocol| *protocol == packet.protocol)?;
        let kind = kind + if packet.ipv6 { FLOW_PROTOCOLS.len() } else { 0 };
        (usize::from(self.kind) == kind && self.mask.selects(&self.key, &packet.flow)).then_some(self.queue)
    }

    fn from_wire(rule: &FlowRule) -> Steering {
        Steering {
            kind: rule.flow_type.get(),
            queue: rule.action.get(),
            key: Flow::from_wire(&rule.key),
            mask: Flow::from_wire(&rule.mask),
        }
    }

    fn to_wire(self) -> FlowRule {
        FlowRule {
            flow_type: self.kind.into(),
            action: self.queue.into(),
            key: self.key.to_wire(),
            mask: self.mask.to_wire(),
        }
    }
}

impl Flow {
    /// Whether `key` and `packet` agree in the bits that are set in this mask.
    fn selects(&self, key: &Flow, packet: &Flow) -> bool {
        let bytes = |flow: &Flow| {
            let [a, b, c, d] = flow.ports.to_be_bytes();
            flow.source.into_iter().chain(flow.destination).chain([a, b, c, d, flow.class])
        };
        bytes(self).zip(bytes(key)).zip(bytes(packet)).all(|((mask, key), value)| (key ^ value) & mask == 0)
    }

    fn from_wire(spec: &FlowSpec) -> Flow {
        Flow {
            source: spec.src_ip,
            destination: spec.dst_ip,
            ports: u32::from(spec.src_port.get()) << 16 | u32::from(spec.dst_port.get()),
            class: spec.tos,
        }
    }

    fn to_wire(self) -> FlowSpec {
        FlowSpec {
            src_ip: self.source,
            dst_ip: self.destination,
            src_port: ((self.ports >> 16) as u16).into(),
            dst_port: (self.ports as u16).into(),
            tos: self.class,
            padding: [0; 3],
        }
    }
}

impl Gve {
    /// `GVE_ADMINQ_EXTENDED_COMMAND`: a command too long for an entry.
    pub(super) fn extended_command(
        &mut self,
        context: &mut Context<'_>,
        command: ExtendedCommand,
    ) -> Result<(), Failure> {
        if command.inner_opcode.get() != CONFIGURE_FLOW_RULE {
            let message = format!("extended admin opcode {:#x}", command.inner_opcode);
            return Err(Failure::breach(Status::Unimplemented, &crate::rules::ADMIN_OPCODE, message));
        }
        self.require_flow_steering()?;
        let length = command.inner_length.get();
        if length as usize != size_of::<ConfigureFlowRule>() {
            return Err(Failure::parameter(format!("flow rule command of {length} bytes")));
        }
        let inner: ConfigureFlowRule = context.dma.read_object(command.inner_command_addr.get())?;
        let location = inner.location.get();
        match inner.opcode.get() {
            ADD => self.add_flow_rule(location, Steering::from_wire(&inner.rule)),
            DELETE => match self.state.flow_rules.remove(&location) {
                Some(_) => Ok(()),
                None => Err(Failure::refusal(Status::NotFound)),
            },
            DELETE_ALL => {
                self.state.flow_rules.clear();
                Ok(())
            }
            other => Err(Failure::parameter(format!("flow rule operation {other}"))),
        }
    }

    fn add_flow_rule(&mut self, location: u32, rule: Steering) -> Result<(), Failure> {
        if usize::from(rule.kind) >= 2 * FLOW_PROTOCOLS.len() {
            return Err(Failure::parameter(format!("flow type {}", rule.kind)));
        }
        if rule.queue >= self.config.max_queues {
            return Err(Failure::parameter(format!("flow rule to RX queue {}", rule.queue)));
        }
        if location >= self.config.options.flow_rules {
            return Err(Failure::refusal(Status::OutOfRange));
        }
        if self.state.flow_rules.contains_key(&location) {
            return Err(Failure::refusal(Status::AlreadyExists));
        }
        self.state.flow_rules.insert(location, rule);
        Ok(())
    }

    /// `GVE_ADMINQ_QUERY_FLOW_RULES`.
    pub(super) fn query_flow_rules(
        &mut self,
        context: &mut Context<'_>,
        command: QueryFlowRules,
        action: &CommandAction,
    ) -> Result<(), Failure> {
        self.require_flow_steering()?;
        let available = command.available_length.get();
        let Some(room) = available.checked_sub(size_of::<QueryFlowRulesDescriptor>() as u64) else {
            return Err(Failure::parameter(format!("{available} bytes for queried flow rules")));
        };
        let rules = self.state.flow_rules.range(command.starting_rule_id.get()..);
        let (count, body): (usize, Vec<u8>) = match command.opcode.get() {
            QUERY_RULES => {
                let most = room as usize / size_of::<QueriedFlowRule>();
                let rules: Vec<_> = rules
                    .take(most)
                    .map(|(location, rule)| QueriedFlowRule {
                        location: (*location).into(),
                        rule: rule.to_wire(),
                    })
                    .collect();
                (rules.len(), rules.as_bytes().to_vec())
            }
            QUERY_IDS => {
                let ids: Vec<_> = rules.take(room as usize / 4).map(|(id, _)| id.to_be_bytes()).collect();
                (ids.len(), ids.concat())
            }
            QUERY_NUMBERS => (0, Vec::new()),
            other => return Err(Failure::parameter(format!("flow rule query {other}"))),
        };
        let total = size_of::<QueryFlowRulesDescriptor>() + body.len();
        let descriptor = QueryFlowRulesDescriptor {
            num_flow_rules: (self.state.flow_rules.len() as u32).into(),
            max_flow_rules: self.config.options.flow_rules.into(),
            num_queried_rules: (count as u32).into(),
            total_length: (total as u32).into(),
        };
        let bytes = [descriptor.as_bytes(), &body].concat();
        let address = command.rule_descriptor_addr.get();
        Ok(write_answer(context, address, QueryFlowRulesDescriptor::LAYOUT, action, &bytes[..])?)
    }

    fn require_flow_steering(&self) -> Result<(), Failure> {
        match self.offers(Feature::FlowSteering) {
            true => Ok(()),
            false => Err(Failure::refusal(Status::Unimplemented)),
        }
    }
}

/// IP protocols in the order of `enum gve_adminq_flow_type`, first for IPv4, then again for IPv6:
/// TCP, UDP, SCTP, authentication header, encapsulating security payload.
const FLOW_PROTOCOLS: [u8; 5] = [6, 17, 132, 51, 50];
/// `GVE_FLOW_RULE_CFG_ADD`.
const ADD: u16 = 0;
/// `GVE_FLOW_RULE_CFG_DEL`.
const DELETE: u16 = 1;
/// `GVE_FLOW_RULE_CFG_RESET`.
const DELETE_ALL: u16 = 2;
/// `GVE_FLOW_RULE_QUERY_RULES`.
const QUERY_RULES: u16 = 0;
/// `GVE_FLOW_RULE_QUERY_IDS`.
const QUERY_IDS: u16 = 1;
/// `GVE_FLOW_RULE_QUERY_STATS`.
const QUERY_NUMBERS: u16 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(kind: u16, ports: u32, mask: u32) -> Steering {
        let key = Flow { ports, ..Flow::default() };
        Steering { kind, queue: 3, key, mask: Flow { ports: mask, ..Flow::default() } }
    }

    #[test]
    fn a_rule_looks_only_at_what_its_mask_selects() {
        let flow = Flow { source: [7; 16], ports: 1000 << 16 | 80, ..Flow::default() };
        let packet = Packet { ipv6: false, protocol: 6, flow };
        assert_eq!(rule(0, 80, 0xffff).queue(&packet), Some(3));
        assert_eq!(rule(0, 81, 0xffff).queue(&packet), None);
        assert_eq!(rule(1, 80, 0xffff).queue(&packet), None, "UDP");
        assert_eq!(rule(5, 80, 0xffff).queue(&packet), None, "IPv6");
        assert_eq!(rule(0, 1, 0).queue(&packet), Some(3), "any port");
    }

    #[test]
    fn rules_survive_the_wire() {
        let rule = rule(9, 0x0102_0304, 0xffff_0000);
        assert_eq!(Steering::from_wire(&rule.to_wire()), rule);
    }
}
