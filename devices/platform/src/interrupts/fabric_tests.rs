use proptest::prelude::*;

use super::*;

const SPURIOUS: u64 = LOCAL_APIC_BASE + 0xf0;
const END: u64 = LOCAL_APIC_BASE + 0xb0;
const COMMAND: u64 = LOCAL_APIC_BASE + 0x300;
const COMMAND_HIGH: u64 = LOCAL_APIC_BASE + 0x310;

fn fabric(cpus: usize) -> InterruptFabric {
    let mut fabric = InterruptFabric::new(cpus, 1_000_000_000);
    for cpu in 0..cpus {
        write(&mut fabric, cpu, SPURIOUS, 0x1ff);
    }
    fabric
}

fn write(fabric: &mut InterruptFabric, cpu: usize, address: u64, value: u32) {
    assert!(fabric.memory_write(cpu, Time::ZERO, address, &value.to_le_bytes()));
}

fn read(fabric: &mut InterruptFabric, cpu: usize, address: u64) -> u32 {
    let mut data = [0xff; 4];
    assert!(fabric.memory_read(cpu, Time::ZERO, address, &mut data));
    u32::from_le_bytes(data)
}

fn route(fabric: &mut InterruptFabric, input: u32, entry: u64) {
    for (half, value) in [(1, entry >> 32), (0, entry)] {
        write(fabric, 0, IO_APIC_BASE, 0x10 + input * 2 + half);
        write(fabric, 0, IO_APIC_BASE + 0x10, value as u32);
    }
}

#[test]
fn each_cpu_sees_its_own_apic() {
    let mut fabric = fabric(3);
    assert_eq!(read(&mut fabric, 2, LOCAL_APIC_BASE + 0x20), 2 << 24);
    assert_eq!(read(&mut fabric, 0, LOCAL_APIC_BASE + 0x30), 0x0005_0014);
    assert!(!fabric.memory_read(0, Time::ZERO, 0xfed0_0000, &mut [0; 4]));
}

#[test]
fn messages_find_their_cpu() {
    let mut fabric = fabric(3);
    assert!(fabric.deliver(MsiMessage { address: 0xfee0_2000, data: 0x41 }));
    assert_eq!([0, 1, 2].map(|cpu| fabric.pending(cpu)), [false, false, true]);
    assert_eq!(fabric.acknowledge(2), Some(0x41));
    assert!(!fabric.deliver(MsiMessage { address: 0x1000, data: 0x41 }));
    // Lowest priority, flat logical: the one that is not busy.
    for cpu in 0..3 {
        write(&mut fabric, cpu, LOCAL_APIC_BASE + 0xd0, 1 << (24 + cpu));
    }
    fabric.deliver(MsiMessage { address: 0xfee0_600c, data: 0x142 });
    assert_eq!([0, 1, 2].map(|cpu| fabric.pending(cpu)), [false, true, false]);
}

#[test]
fn inter_processor_interrupts() {
    let mut fabric = fabric(3);
    write(&mut fabric, 1, COMMAND, 0x000c_0055);
    assert_eq!([0, 1, 2].map(|cpu| fabric.acknowledge(cpu)), [Some(0x55), None, Some(0x55)]);
    write(&mut fabric, 0, COMMAND, 0x0004_0066);
    assert_eq!(fabric.acknowledge(0), Some(0x66));
    write(&mut fabric, 0, COMMAND_HIGH, 2 << 24);
    write(&mut fabric, 0, COMMAND, 0x0000_0400);
    assert!(fabric.take_nmi(2) && !fabric.take_nmi(1));
}

#[test]
fn starting_a_cpu_the_way_linux_does() {
    let mut fabric = fabric(2);
    assert!(fabric.waiting_for_startup(1) && !fabric.waiting_for_startup(0));
    write(&mut fabric, 0, COMMAND_HIGH, 1 << 24);
    for command in [0x0000_c500, 0x0000_8500, 0x0000_069a, 0x0000_069a] {
        write(&mut fabric, 0, COMMAND, command);
    }
    assert_eq!(fabric.take_startup(1), Some(Startup::Init));
    assert_eq!(fabric.take_startup(1), Some(Startup::Begin(0x9a)));
    assert_eq!(fabric.take_startup(1), None);
    assert!(!fabric.waiting_for_startup(1));
}

#[test]
fn a_level_triggered_line_interrupts_until_it_falls() {
    let mut fabric = fabric(1);
    route(&mut fabric, 9, 0x8000 | 0x49);
    fabric.set_line(9, true);
    assert_eq!(fabric.acknowledge(0), Some(0x49));
    assert_eq!(fabric.io_apic().entry(9).unwrap() & 0x4000, 0x4000, "remote IRR");
    write(&mut fabric, 0, END, 0);
    assert_eq!(fabric.acknowledge(0), Some(0x49), "still asserted");
    fabric.set_line(9, false);
    write(&mut fabric, 0, END, 0);
    assert_eq!(fabric.acknowledge(0), None);
    assert_eq!(fabric.io_apic().entry(9).unwrap() & 0x4000, 0);
}

#[test]
fn an_edge_interrupts_once_and_is_lost_while_masked() {
    let mut fabric = fabric(1);
    route(&mut fabric, 4, 0x44);
    fabric.set_line(4, true);
    fabric.set_line(4, true);
    assert_eq!((fabric.acknowledge(0), fabric.acknowledge(0)), (Some(0x44), None));
    write(&mut fabric, 0, END, 0);
    fabric.set_line(4, false);
    route(&mut fabric, 4, 0x1_0044);
    fabric.set_line(4, true);
    route(&mut fabric, 4, 0x44);
    assert_eq!(fabric.acknowledge(0), None);
}

#[test]
fn the_timer_reaches_the_cpu_through_the_virtual_wire() {
    let mut fabric = InterruptFabric::new(2, 1_000_000_000);
    fabric.set_virtual_wire();
    for (port, value) in [(0x20, 0x11), (0x21, 0x30), (0x21, 4), (0x21, 1), (0x21, 0xfe)] {
        fabric.pic_write(port, value);
    }
    fabric.set_line(2, true);
    fabric.set_line(2, false);
    assert_eq!([0, 1].map(|cpu| fabric.interrupt_pending(cpu)), [true, false]);
    assert_eq!(fabric.acknowledge(0), Some(0x30));
    assert!(!fabric.pending(0));
}

#[test]
fn x2apic_registers_are_msrs_and_strict() {
    let mut fabric = fabric(2);
    let now = Time::ZERO;
    assert_eq!(fabric.msr_read(0, now, 0x802), Err(MsrFault), "in xAPIC mode");
    for cpu in 0..2 {
        let base = fabric.msr_read(cpu, now, 0x1b).unwrap();
        fabric.msr_write(cpu, now, 0x1b, base | 0x400).unwrap();
    }
    assert_eq!(fabric.msr_read(1, now, 0x802), Ok(1));
    assert!(!fabric.memory_read(0, now, LOCAL_APIC_BASE, &mut [0; 4]));
    fabric.msr_write(0, now, 0x830, 1 << 32 | 0x55).unwrap();
    assert_eq!(fabric.acknowledge(1), Some(0x55));
    fabric.msr_write(0, now, 0x83f, 0x66).unwrap();
    assert_eq!(fabric.acknowledge(0), Some(0x66));
    for (index, value) in [(0x802, 0), (0x80b, 1), (0x808, 0x100), (0x80e, 0), (0x831, 0), (0x83f, 0x166)] {
        assert_eq!(fabric.msr_write(0, now, index, value), Err(MsrFault), "{index:#x}");
    }
    for index in [0x80b, 0x80e, 0x831, 0x83f, 0x840] {
        assert_eq!(fabric.msr_read(0, now, index), Err(MsrFault), "{index:#x}");
    }
}

#[test]
fn a_deadline_is_a_counter_value() {
    let mut fabric = InterruptFabric::new(1, 2_000_000_000);
    write(&mut fabric, 0, SPURIOUS, 0x1ff);
    write(&mut fabric, 0, LOCAL_APIC_BASE + 0x320, 0x30 | 2 << 17);
    fabric.msr_write(0, Time::ZERO, 0x6e0, 1_001).unwrap();
    assert_eq!(fabric.next_deadline(), Some(Time::from_nanos(501)), "not before the counter is there");
    fabric.fire_timers(Time::from_nanos(501));
    assert_eq!(fabric.acknowledge(0), Some(0x30));
    fabric.msr_write(0, Time::from_nanos(501), 0x6e0, u64::MAX).unwrap();
    assert_eq!(fabric.next_deadline(), None, "the end of time never comes");
}

proptest! {
    #[test]
    fn nothing_panics_and_a_saved_state_is_the_state(
        steps in prop::collection::vec((0_u8..8, 0_usize..4, any::<u16>(), any::<u64>()), 0..150),
    ) {
        let mut fabric = InterruptFabric::new(3, 1_234_567_890);
        for (kind, cpu, place, value) in steps {
            let now = Time::from_nanos(value >> 20);
            let data = value.to_le_bytes();
            let length = 1 << (place >> 14);
            match kind {
                0 => { fabric.memory_write(cpu, now, LOCAL_APIC_BASE + u64::from(place & 0xfff), &data[..length]); }
                1 => { fabric.memory_write(cpu, now, IO_APIC_BASE + u64::from(place & 0x13), &data[..length]); }
                2 => { fabric.memory_read(cpu, now, LOCAL_APIC_BASE + u64::from(place & 0xfff), &mut [0; 4]); }
                3 => { let _ = fabric.msr_write(cpu, now, [0x1b, 0x6e0, 0x800 + u32::from(place & 0x3f)][cpu % 3], value); }
                4 => { let _ = fabric.msr_read(cpu, now, 0x800 + u32::from(place & 0x3f)); }
                5 => { fabric.deliver(MsiMessage { address: 0xfee0_0000 | u64::from(place) << 4, data: value as u32 }); }
                6 => fabric.set_line(u32::from(place & 0x1f), value & 1 != 0),
                _ => { fabric.acknowledge(cpu); fabric.fire_timers(now); fabric.take_startup(cpu); }
            }
        }
        let saved = serde_json::to_string(&fabric).unwrap();
        prop_assert_eq!(serde_json::from_str::<InterruptFabric>(&saved).unwrap(), fabric);
    }
}
