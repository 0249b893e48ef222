//! The smallest hypervisor's interface with a bus of channels, and a NIC for it.

use std::collections::BTreeMap;

use nicvisor_core::fault::{Fault, FaultError};
use nicvisor_core::vmbus::{GpaRange, Gpadl, Offer, Rings};
use nicvisor_core::{
    ChannelBus, Context, DataPath, Device, DeviceEvent, DeviceId, EventKind, Fate, Frame, GeneralRegisters,
    HypervisorInterface, MsiMessage, MsrFault, Port, RestoreError, Rule, Severity, Time, VmbusDevice,
};
use serde_json::Value;

/// Calls with the device's number in RBX: RAX 0 opens its channel on the page in RCX, RAX 1 signals it.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    devices: BTreeMap<DeviceId, Box<dyn VmbusDevice>>,
    /// How many offers were made.
    offers: u64,
}

impl Exchange {
    /// Does something with a device in its name; its interrupts become messages.
    fn on<R>(
        &mut self,
        context: &mut Context<'_>,
        id: DeviceId,
        act: impl FnOnce(&mut dyn VmbusDevice, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let device = self.devices.get_mut(&id)?;
        let (result, raised) = context.on_behalf(id, |context| {
            let result = act(&mut **device, context);
            (result, std::mem::take(&mut context.effects.vectors))
        });
        let message = |channel: u16| MsiMessage { address: 0xfee0_0000, data: 0x40 + u32::from(channel) };
        context.effects.messages.extend(raised.into_iter().map(message));
        Some(result)
    }
}

impl ChannelBus for Exchange {
    fn insert(&mut self, _context: &mut Context<'_>, id: DeviceId, device: Box<dyn VmbusDevice>) {
        self.offers += 1;
        self.devices.insert(id, device);
    }

    fn remove(&mut self, context: &mut Context<'_>, id: DeviceId) -> Option<Box<dyn VmbusDevice>> {
        self.on(context, id, |device, context| device.reset(context))?;
        self.devices.remove(&id)
    }

    fn device(&self, id: DeviceId) -> Option<&dyn Device> {
        Some(&**self.devices.get(&id)?)
    }

    fn call(
        &mut self,
        context: &mut Context<'_>,
        id: DeviceId,
        call: &mut dyn FnMut(&mut dyn Device, &mut Context<'_>),
    ) {
        self.on(context, id, |device, context| call(device, context));
    }

    fn read_memory(&mut self, context: &mut Context<'_>, address: u64, data: &mut [u8]) -> bool {
        let ids: Vec<DeviceId> = self.devices.keys().copied().collect();
        ids.into_iter().any(|id| {
            self.on(context, id, |device, context| device.read_memory(context, address, data)) == Some(true)
        })
    }

    fn write_memory(&mut self, context: &mut Context<'_>, address: u64, data: &[u8]) -> bool {
        let ids: Vec<DeviceId> = self.devices.keys().copied().collect();
        ids.into_iter().any(|id| {
            self.on(context, id, |device, context| device.write_memory(context, address, data)) == Some(true)
        })
    }

    fn doorbells(&self) -> Vec<u64> {
        self.devices.values().flat_map(|device| device.doorbells()).collect()
    }
}

impl HypervisorInterface for Exchange {
    fn cpuid(&self) -> Vec<(u32, [u32; 4])> {
        Vec::new()
    }

    fn read_msr(&mut self, _: &mut Context<'_>, _: usize, _: u32) -> Option<Result<u64, MsrFault>> {
        None
    }

    fn write_msr(&mut self, _: &mut Context<'_>, _: usize, _: u32, _: u64) -> Option<Result<(), MsrFault>> {
        None
    }

    fn call_port(&self) -> u16 {
        CALL_PORT
    }

    fn call(&mut self, context: &mut Context<'_>, _cpu: usize, registers: &mut GeneralRegisters) {
        let [operation, page, _, device, ..] = *registers;
        let id = DeviceId(device as u32);
        let range = GpaRange { byte_offset: 0, byte_count: 0x1000, pages: vec![page] };
        let memory = Gpadl { handle: 1, ranges: vec![range] };
        let rings = Rings { memory, to_guest_offset: 0x800, target_processor: 0, user_data: Vec::new() };
        let done = self.on(context, id, |device, context| match operation {
            0 => device.open(context, 0, rings).is_ok(),
            _ => {
                device.signalled(context, 0);
                true
            }
        });
        registers[0] = u64::from(done != Some(true));
    }

    fn bus(&self) -> Option<&dyn ChannelBus> {
        Some(self)
    }

    fn bus_mut(&mut self) -> Option<&mut dyn ChannelBus> {
        Some(self)
    }
}

impl Device for Exchange {
    fn receive(&mut self, _context: &mut Context<'_>, _port: u16, _frame: Frame) {}

    fn ports(&self) -> Vec<Port> {
        Vec::new()
    }

    fn counters(&self) -> Vec<(String, u64)> {
        vec![("offers".to_owned(), self.offers)]
    }

    fn inject(&mut self, context: &mut Context<'_>, fault: &Fault) -> Result<(), FaultError> {
        context.observe(EventKind::State, || DeviceEvent::new(EventKind::State, format!("{fault:?}")));
        Ok(())
    }

    fn next_deadline(&self) -> Option<Time> {
        self.devices.values().filter_map(|device| device.next_deadline()).min()
    }

    fn deadline(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        let due = |device: &dyn VmbusDevice| device.next_deadline().is_some_and(|deadline| deadline <= now);
        let ids: Vec<DeviceId> =
            self.devices.iter().filter(|(_, device)| due(&***device)).map(|(id, _)| *id).collect();
        for id in ids {
            self.on(context, id, |device, context| device.deadline(context));
        }
    }

    fn reset(&mut self, context: &mut Context<'_>) {
        let ids: Vec<DeviceId> = self.devices.keys().copied().collect();
        for id in ids {
            self.on(context, id, |device, context| device.reset(context));
        }
    }

    fn save(&self) -> Value {
        Value::Null
    }

    fn restore(&mut self, _state: &Value) -> Result<(), RestoreError> {
        Ok(())
    }
}

/// A NIC whose rings hold one frame of [`FRAME`] bytes each. A frame to send that begins with `[0xff; 6]` moves the
/// data path to the partner, one that begins with zeros is against the rules, and one with `[0xfe; 6]` asks for the
/// device to be taken away.
#[derive(Debug)]
pub(crate) struct Courier {
    pub(crate) mac: [u8; 6],
    pub(crate) window: u64,
    rings: Option<Rings>,
    /// When it tells the guest of itself.
    wake: Option<Time>,
    /// How often its partner came, and went.
    partners: [u64; 2],
}

impl Courier {
    pub(crate) fn new(mac: [u8; 6], window: u64) -> Courier {
        Courier { mac, window, rings: None, wake: None, partners: [0; 2] }
    }
}

impl VmbusDevice for Courier {
    fn offer(&self) -> Offer {
        Offer { class: [1; 16], instance: [2; 16], flags: 0, mmio_megabytes: 1, user_defined: Vec::new() }
    }

    fn open(&mut self, context: &mut Context<'_>, _channel: u16, rings: Rings) -> Result<(), u32> {
        self.rings = Some(rings);
        self.wake = Some(context.now + WAKES_AFTER);
        Ok(())
    }

    fn close(&mut self, _context: &mut Context<'_>, _channel: u16) {
        self.rings = None;
    }

    fn signalled(&mut self, context: &mut Context<'_>, _channel: u16) {
        let Some(rings) = &self.rings else { return };
        let mut frame = [0; FRAME];
        rings.memory.read(&context.dma, 0, &mut frame).unwrap();
        if frame[..6] == [0; 6] {
            context.report(&NO_DESTINATION, "a frame for nobody", |_| ());
        }
        if frame[..6] == [0xff; 6] {
            context.switch_path(0, DataPath::Partner);
        }
        if frame[..6] == [0xfe; 6] {
            return context.leave();
        }
        context.transmit(0, frame.to_vec());
    }

    fn gpadl_created(&mut self, _context: &mut Context<'_>, _gpadl: Gpadl) {}

    fn gpadl_torn_down(&mut self, _context: &mut Context<'_>, _handle: u32) {}

    fn read_memory(&mut self, _context: &mut Context<'_>, address: u64, data: &mut [u8]) -> bool {
        let inside = address == self.window;
        if inside {
            data.fill(0x5a);
        }
        inside
    }

    fn write_memory(&mut self, context: &mut Context<'_>, address: u64, _data: &[u8]) -> bool {
        let inside = address == self.window;
        if inside {
            self.signalled(context, 0);
        }
        inside
    }

    fn doorbells(&self) -> Vec<u64> {
        vec![self.window]
    }
}

impl Device for Courier {
    fn receive(&mut self, context: &mut Context<'_>, _port: u16, frame: Frame) {
        let Some(rings) = &self.rings else {
            return context.settle(frame.id, Fate::Dropped(nicvisor_core::DropReason::FILTERED));
        };
        let bytes = &frame.bytes[..FRAME.min(frame.bytes.len())];
        rings.memory.write(&context.dma, rings.to_guest_offset.into(), bytes).unwrap();
        context.settle(frame.id, Fate::Delivered);
        context.raise(0);
    }

    fn next_deadline(&self) -> Option<Time> {
        self.wake
    }

    fn deadline(&mut self, context: &mut Context<'_>) {
        self.wake = None;
        context.raise(1);
    }

    fn reset(&mut self, _context: &mut Context<'_>) {
        self.rings = None;
        self.wake = None;
    }

    fn ports(&self) -> Vec<Port> {
        vec![Port { mac: self.mac, mtu: 1500 }]
    }

    fn partner_changed(&mut self, _context: &mut Context<'_>, _port: u16, present: bool) {
        self.partners[usize::from(!present)] += 1;
    }

    fn counters(&self) -> Vec<(String, u64)> {
        let [came, went] = self.partners;
        vec![("partner_came".to_owned(), came), ("partner_went".to_owned(), went)]
    }

    fn inject(&mut self, context: &mut Context<'_>, _fault: &Fault) -> Result<(), FaultError> {
        context.raise(2);
        Ok(())
    }

    fn save(&self) -> Value {
        Value::Null
    }

    fn restore(&mut self, _state: &Value) -> Result<(), RestoreError> {
        Ok(())
    }
}

pub(crate) const CALL_PORT: u16 = 0xd8;
/// Bytes in every frame.
pub(crate) const FRAME: usize = 64;
pub(crate) const WAKES_AFTER: nicvisor_core::Duration = nicvisor_core::Duration::from_millis(5);
const NO_DESTINATION: Rule = Rule {
    id: "test-no-destination",
    title: "no destination",
    meaning: "A frame is for somebody.",
    source: "this test",
    severity: Severity::Note,
};
