//! The root bus: up to 32 devices of 8 functions, a host bridge in slot 00.0, and the ways to reach them. A function
//! can have a root port in front of it: then the guest finds the port in its slot, and the function alone on the bus
//! behind.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::address::{Address, CONFIG_ADDRESS, CONFIG_ADDRESS_BITS};
use super::layout::{HEADER_MULTI_FUNCTION, HEADER_TYPE};
use super::registers::{Registers, SavedRegisters};
use super::root_port::RootPort;
use super::windows::{self, NoSpace, Windows};
use super::{Bar, Function, Identity, layout};
use crate::{Context, RestoreError, Time};

/// Bus 0 of PCI segment 0.
///
/// A guest access goes through [`Self::ecam_read`] and friends, which return the slot that answered, so that
/// the machine knows whose effects the context now holds.
#[derive(Debug)]
pub struct Root {
    functions: BTreeMap<Slot, Function>,
    /// The root ports, by their slots. What is behind each is the function of the same slot.
    ports: BTreeMap<Slot, RootPort>,
    host_bridge: Registers,
    config_address: u32,
    /// Decoded ranges in ascending order; empty and `stale` after something changed.
    routes: Vec<Route>,
    stale: bool,
}

/// A function's place: on the root bus, or behind the root port that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot {
    /// Device number, 0 to 31.
    pub device: u8,
    /// Function number, 0 to 7.
    pub function: u8,
}

/// Where an address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The function.
    pub slot: Slot,
    /// Its BAR.
    pub bar: u8,
    /// Offset in the BAR.
    pub offset: u64,
}

#[derive(Clone, Debug)]
struct Route {
    range: Range<u64>,
    slot: Slot,
    bar: u8,
}

/// Whose configuration space an address leads to.
enum Target {
    HostBridge,
    Port(Slot),
    Function(Slot),
}

#[derive(Serialize, Deserialize)]
struct SavedRoot {
    host_bridge: SavedRegisters,
    config_address: u32,
    ports: BTreeMap<String, SavedRegisters>,
    functions: BTreeMap<String, Value>,
}

impl Root {
    /// A bus with only its host bridge.
    pub fn new() -> Root {
        Root {
            functions: BTreeMap::new(),
            ports: BTreeMap::new(),
            host_bridge: layout::header(&HOST_BRIDGE),
            config_address: 0,
            routes: Vec::new(),
            stale: false,
        }
    }

    /// Puts `function` into `slot`. Returns it when the slot is taken, does not exist, or has no function 0.
    ///
    /// # Errors
    /// The function itself, unchanged.
    pub fn insert(&mut self, slot: Slot, mut function: Function) -> Result<(), Box<Function>> {
        let first = Slot { function: 0, ..slot };
        let valid = slot.device < 32 && slot.function < 8 && slot != Slot::HOST_BRIDGE;
        let reachable = slot == first || self.exists(first) && !self.ports.contains_key(&first);
        if !valid || !reachable || self.functions.contains_key(&slot) {
            return Err(Box::new(function));
        }
        function.upstream = self.ports.get(&slot).is_none_or(RootPort::masters_bus);
        self.functions.insert(slot, function);
        self.stale = true;
        Ok(())
    }

    /// Puts a root port into `slot`, in front of the function that is or will be there. Returns whether that can be:
    /// a port is the only function of its device.
    pub fn insert_port(&mut self, slot: Slot) -> bool {
        let others = self.functions.keys().any(|other| other.device == slot.device && *other != slot);
        let valid = (1..32).contains(&slot.device) && slot.function == 0;
        if !valid || others || self.ports.contains_key(&slot) {
            return false;
        }
        self.ports.insert(slot, RootPort::new());
        if let Some(function) = self.functions.get_mut(&slot) {
            function.upstream = false;
        }
        self.stale = true;
        true
    }

    /// Whether there is a root port in `slot`.
    pub fn has_port(&self, slot: Slot) -> bool {
        self.ports.contains_key(&slot)
    }

    /// The lowest device number with nothing in it, for a new function.
    pub fn free_slot(&self) -> Option<Slot> {
        let mut slots = (1..32).map(|device| Slot { device, function: 0 });
        slots.find(|slot| !self.functions.contains_key(slot) && !self.ports.contains_key(slot))
    }

    /// Takes the function out of `slot`, after a reset that settles the frames inside.
    pub fn remove(&mut self, context: &mut Context<'_>, slot: Slot) -> Option<Function> {
        let mut function = self.functions.remove(&slot)?;
        function.reset(context);
        self.stale = true;
        Some(function)
    }

    /// The function in `slot`.
    pub fn function(&self, slot: Slot) -> Option<&Function> {
        self.functions.get(&slot)
    }

    /// The function in `slot`, to be called. Configuration accesses go through the root instead.
    pub fn function_mut(&mut self, slot: Slot) -> Option<&mut Function> {
        self.functions.get_mut(&slot)
    }

    /// All functions in slot order, without the host bridge.
    pub fn functions(&self) -> impl Iterator<Item = (Slot, &Function)> {
        self.functions.iter().map(|(&slot, function)| (slot, function))
    }

    /// Where the functions' doorbells are now, as far as the guest can reach them.
    pub fn doorbells(&self) -> Vec<u64> {
        let reachable = |slot: &Slot, address: &u64| match self.ports.get(slot) {
            Some(port) => port.forwards(&(*address..address.saturating_add(1))),
            None => true,
        };
        let of = |(slot, function): (&Slot, &Function)| {
            function.doorbells().into_iter().filter(|address| reachable(slot, address)).collect::<Vec<_>>()
        };
        self.functions.iter().flat_map(of).collect()
    }

    /// Gives an address to each BAR that has none. Before the first instruction this is all of them, for
    /// guests that boot without firmware; after a function was added it is that function's. Those behind root ports
    /// are left to the guest, which numbers the buses and opens the ports' windows.
    ///
    /// # Errors
    /// When a window is full.
    pub fn assign_bars(&mut self, windows: &Windows) -> Result<(), NoSpace> {
        let mut taken = Vec::new();
        let mut wanted = Vec::new();
        for (&slot, function) in self.functions.iter().filter(|(slot, _)| !self.ports.contains_key(slot)) {
            for bar in function.bars() {
                match function.bar_address(bar) {
                    0 => wanted.push((slot, *bar)),
                    address => taken.push(address..address.saturating_add(bar.size)),
                }
            }
        }
        // Large BARs first, so that alignment leaves no holes.
        wanted.sort_by_key(|(slot, bar)| (std::cmp::Reverse(bar.size), *slot, bar.index));
        for (slot, bar) in wanted {
            let address = windows::allocate(window_for(&bar, windows), bar.size, &mut taken);
            let address = address.ok_or(NoSpace { slot, bar: bar.index, size: bar.size })?;
            if let Some(function) = self.functions.get_mut(&slot) {
                function.set_bar_address(&bar, address);
            }
        }
        self.stale = true;
        Ok(())
    }

    /// The guest reads `data.len()` bytes at `offset` of the ECAM region; `data` comes filled with ones.
    pub fn ecam_read(&mut self, offset: u64, data: &mut [u8]) {
        if let Some(address) = Address::in_ecam(offset, data.len()) {
            self.read_register(address, data);
        }
    }

    /// The guest writes `data` at `offset` of the ECAM region. Returns the slot written to.
    pub fn ecam_write(&mut self, context: &mut Context<'_>, offset: u64, data: &[u8]) -> Option<Slot> {
        self.write_register(context, Address::in_ecam(offset, data.len())?, data)
    }

    /// The guest reads from I/O port `port` in 0xcf8 to 0xcff; `data` comes filled with ones.
    pub fn port_read(&mut self, port: u16, data: &mut [u8]) {
        if port == CONFIG_ADDRESS && data.len() == 4 {
            data.copy_from_slice(&self.config_address.to_le_bytes());
        } else if let Some(address) = Address::by_ports(self.config_address, port, data.len()) {
            self.read_register(address, data);
        }
    }

    /// The guest writes to I/O port `port` in 0xcf8 to 0xcff. Returns the slot written to.
    pub fn port_write(&mut self, context: &mut Context<'_>, port: u16, data: &[u8]) -> Option<Slot> {
        if let (CONFIG_ADDRESS, &[a, b, c, d]) = (port, data) {
            self.config_address = u32::from_le_bytes([a, b, c, d]) & CONFIG_ADDRESS_BITS;
            return None;
        }
        self.write_register(context, Address::by_ports(self.config_address, port, data.len())?, data)
    }

    /// Which function decodes all of `address..address + length` at the moment.
    #[inline]
    pub fn route(&mut self, address: u64, length: usize) -> Option<Place> {
        if self.stale {
            self.rebuild_routes();
        }
        let index = self.routes.partition_point(|route| route.range.start <= address);
        let route = &self.routes[index.checked_sub(1)?];
        let inside = address.checked_add(length as u64)? <= route.range.end;
        inside.then(|| Place { slot: route.slot, bar: route.bar, offset: address - route.range.start })
    }

    /// The guest reads `data.len()` bytes of memory at `address`; `data` comes filled with ones. Returns the
    /// slot that answered, if any did.
    pub fn memory_read(&mut self, context: &mut Context<'_>, address: u64, data: &mut [u8]) -> Option<Slot> {
        let place = self.route(address, data.len())?;
        let function = self.functions.get_mut(&place.slot)?;
        function.bar_read(context, place.bar, place.offset, data);
        Some(place.slot)
    }

    /// The guest writes `data` to memory at `address`. Returns the slot that took it, if any did.
    pub fn memory_write(&mut self, context: &mut Context<'_>, address: u64, data: &[u8]) -> Option<Slot> {
        let place = self.route(address, data.len())?;
        let function = self.functions.get_mut(&place.slot)?;
        function.bar_write(context, place.bar, place.offset, data);
        Some(place.slot)
    }

    /// When the first of the functions wants to be called.
    pub fn next_deadline(&self) -> Option<Time> {
        self.functions.values().filter_map(Function::next_deadline).min()
    }

    /// A function whose deadline has come: the machine calls [`Function::deadline`] on it and asks again.
    pub fn due(&self, now: Time) -> Option<Slot> {
        let mut due =
            self.functions.iter().filter_map(|(&slot, function)| Some((function.next_deadline()?, slot)));
        let first = due.by_ref().min()?;
        (first.0 <= now).then_some(first.1)
    }

    /// Machine reset, one slot at a time so that the effects can be told apart: BARs lose their addresses.
    pub fn reset(&mut self, context: &mut Context<'_>, slot: Slot) {
        if let Some(function) = self.functions.get_mut(&slot) {
            function.reset(context);
        }
        if slot == Slot::HOST_BRIDGE {
            self.host_bridge.reset();
            self.config_address = 0;
        }
        if let Some(port) = self.ports.get_mut(&slot) {
            port.reset();
        }
        self.follow_port(context, slot);
    }

    /// The whole state as JSON, to be shown or handed to [`Self::restore`].
    pub fn save(&self) -> Value {
        let functions = self.functions.iter().map(|(slot, function)| (slot.to_string(), function.save()));
        let saved = SavedRoot {
            host_bridge: self.host_bridge.save(),
            config_address: self.config_address,
            ports: self.ports.iter().map(|(slot, port)| (slot.to_string(), port.save())).collect(),
            functions: functions.collect(),
        };
        serde_json::to_value(saved).unwrap_or(Value::Null)
    }

    /// Takes over a state that [`Self::save`] of a bus with the same functions returned.
    ///
    /// # Errors
    /// When `state` is not such a state. Functions before the one that did not fit have then changed.
    pub fn restore(&mut self, state: &Value) -> Result<(), RestoreError> {
        let saved = SavedRoot::deserialize(state).map_err(|error| RestoreError(error.to_string()))?;
        if !self.functions.keys().map(Slot::to_string).eq(saved.functions.keys().cloned()) {
            return Err(RestoreError("the buses have different functions".into()));
        }
        if !self.ports.keys().map(Slot::to_string).eq(saved.ports.keys().cloned()) {
            return Err(RestoreError("the buses have different root ports".into()));
        }
        self.stale = true;
        for ((slot, port), state) in self.ports.iter_mut().zip(saved.ports.values()) {
            port.restore(state)?;
            if let Some(function) = self.functions.get_mut(slot) {
                function.upstream = port.masters_bus();
            }
        }
        for (function, state) in self.functions.values_mut().zip(saved.functions.values()) {
            function.restore(state)?;
        }
        self.host_bridge.restore(&saved.host_bridge)?;
        self.config_address = saved.config_address;
        Ok(())
    }

    fn read_register(&self, address: Address, data: &mut [u8]) {
        let start = usize::from(address.register);
        match self.target(address) {
            None => {}
            Some(Target::HostBridge) => {
                self.host_bridge.read(start, data);
                self.tell_of_others(address.slot, start, data);
            }
            Some(Target::Port(slot)) => {
                if let Some(port) = self.ports.get(&slot) {
                    port.read(start, data);
                }
            }
            Some(Target::Function(slot)) => {
                if let Some(function) = self.functions.get(&slot) {
                    function.config_read(address.register, data);
                    self.tell_of_others(slot, start, data);
                }
            }
        }
    }

    /// Returns the slot of the function that the write may have had an effect on.
    fn write_register(&mut self, context: &mut Context<'_>, address: Address, data: &[u8]) -> Option<Slot> {
        match self.target(address)? {
            Target::HostBridge => {
                self.host_bridge.write(usize::from(address.register), data);
                Some(Slot::HOST_BRIDGE)
            }
            Target::Port(slot) => {
                let resets = self.ports.get_mut(&slot)?.write(usize::from(address.register), data);
                if let Some(function) = self.functions.get_mut(&slot).filter(|_| resets) {
                    function.reset(context);
                }
                self.follow_port(context, slot);
                Some(slot)
            }
            Target::Function(slot) => {
                let function = self.functions.get_mut(&slot)?;
                self.stale |= function.config_write(context, address.register, data);
                Some(slot)
            }
        }
    }

    fn target(&self, Address { bus, slot, .. }: Address) -> Option<Target> {
        match bus {
            0 if slot == Slot::HOST_BRIDGE => Some(Target::HostBridge),
            0 if self.ports.contains_key(&slot) => Some(Target::Port(slot)),
            0 => Some(Target::Function(slot)),
            // A link has one device.
            _ if slot.device != 0 || slot.function != 0 => None,
            _ => self
                .ports
                .iter()
                .find(|(_, port)| port.bus() == Some(bus))
                .map(|(&port, _)| Target::Function(port)),
        }
    }

    /// Sets the multi-function bit in what was read of the configuration space of `slot` from `start` on.
    fn tell_of_others(&self, slot: Slot, start: usize, data: &mut [u8]) {
        let header_type = HEADER_TYPE.checked_sub(start).and_then(|position| data.get_mut(position));
        if let Some(header_type) = header_type {
            let others =
                self.functions.keys().any(|other| other.device == slot.device && other.function != 0);
            *header_type |= if others { HEADER_MULTI_FUNCTION } else { 0 };
        }
    }

    /// The port in `slot` may have changed: what that means for the function behind.
    fn follow_port(&mut self, context: &mut Context<'_>, slot: Slot) {
        self.stale = true;
        if let (Some(port), Some(function)) = (self.ports.get(&slot), self.functions.get_mut(&slot)) {
            function.set_upstream(context, port.masters_bus());
        }
    }

    fn exists(&self, slot: Slot) -> bool {
        slot == Slot::HOST_BRIDGE || self.functions.contains_key(&slot)
    }

    #[cold]
    fn rebuild_routes(&mut self) {
        self.routes.clear();
        for (&slot, function) in &self.functions {
            let decoded = function.bar_ranges().into_iter().map(|decoded| Route {
                range: decoded.address..decoded.address + decoded.size,
                slot,
                bar: decoded.bar,
            });
            let port = self.ports.get(&slot);
            self.routes.extend(decoded.filter(|route| port.is_none_or(|port| port.forwards(&route.range))));
        }
        self.routes.sort_by_key(|route| route.range.start);
        self.stale = false;
    }
}

impl Default for Root {
    fn default() -> Self {
        Root::new()
    }
}

impl Slot {
    /// The host bridge's slot.
    pub const HOST_BRIDGE: Slot = Slot { device: 0, function: 0 };
}

impl fmt::Display for Slot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "00:{:02x}.{}", self.device, self.function)
    }
}

fn window_for<'a>(bar: &Bar, windows: &'a Windows) -> &'a Range<u64> {
    if bar.wide && bar.prefetchable { &windows.high } else { &windows.low }
}

/// A generic PCIe host bridge of Red Hat's virtual devices: no driver or quirk of Linux matches it.
const HOST_BRIDGE: Identity = Identity {
    vendor: 0x1b36,
    device: 0x0008,
    subsystem_vendor: 0x1af4,
    subsystem: 0x1100,
    class: 0x06_00_00,
    revision: 0,
    bars: Vec::new(),
    msix_vectors: 0,
    vendor_capabilities: Vec::new(),
};

#[cfg(test)]
#[path = "root_tests.rs"]
mod tests;
