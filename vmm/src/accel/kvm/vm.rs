//! The virtual machine: memory, interrupt controllers, and which registers are whose.

use kvm_bindings::{
    KVM_CAP_EXIT_ON_EMULATION_FAILURE, KVM_CAP_X86_USER_SPACE_MSR, KVM_IRQ_ROUTING_IRQCHIP,
    KVM_IRQCHIP_IOAPIC, KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, KVM_MSR_EXIT_REASON_FILTER,
    KVM_MSR_EXIT_REASON_INVAL, KVM_MSR_EXIT_REASON_UNKNOWN, KvmIrqRouting, kvm_enable_cap,
    kvm_irq_routing_entry, kvm_irq_routing_irqchip, kvm_msi, kvm_userspace_memory_region,
};
use kvm_ioctls::{VcpuFd, VmFd};
use nicvisor_core::MsiMessage;
use nicvisor_memory::GuestRam;
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion, MemoryRegionAddress};

use super::capability::{EMULATION_FAILURE, Host};
use super::error::KvmError;
use super::msr;

/// A virtual machine without CPUs. Memory is declared last: KVM lets go of it before it is unmapped.
#[derive(Debug)]
pub(super) struct Vm {
    fd: VmFd,
    ram: GuestRam,
}

impl Vm {
    /// A machine over `ram`, with KVM's own interrupt controllers.
    /// Its system calls are the assist's, if `system_calls` says so.
    pub(super) fn new(host: &Host, ram: &GuestRam, system_calls: bool) -> Result<Vm, KvmError> {
        let fd = host.device.create_vm().map_err(KvmError::refused("create a virtual machine"))?;
        let vm = Vm { fd, ram: ram.clone() };
        vm.fd
            .set_identity_map_address(IDENTITY_MAP)
            .and_then(|()| vm.fd.set_tss_address(TASK_STATE))
            .map_err(KvmError::refused("place its own pages"))?;
        vm.fd.create_irq_chip().map_err(KvmError::refused("create interrupt controllers"))?;
        vm.route_lines()?;
        vm.add_memory()?;
        vm.claim_msrs(system_calls)?;
        if host.has(&EMULATION_FAILURE) {
            vm.enable(KVM_CAP_EXIT_ON_EMULATION_FAILURE, 1)
                .map_err(KvmError::refused("say which instruction it cannot emulate"))?;
        }
        Ok(vm)
    }

    /// The CPU with this APIC id.
    pub(super) fn create_vcpu(&self, cpu: usize) -> Result<VcpuFd, KvmError> {
        self.fd.create_vcpu(cpu as u64).map_err(KvmError::refused("create a CPU"))
    }

    /// The virtual machine's file descriptor, for doorbells.
    pub(super) fn fd(&self) -> &VmFd {
        &self.fd
    }

    /// Delivers a message-signalled interrupt. KVM takes no others than those to the APICs' addresses.
    pub(super) fn signal(&self, message: MsiMessage) {
        let msi = kvm_msi {
            address_lo: message.address as u32,
            address_hi: (message.address >> 32) as u32,
            data: message.data,
            ..kvm_msi::default()
        };
        if let Err(error) = self.fd.signal_msi(msi) {
            tracing::debug!(%error, ?message, "KVM did not take an interrupt message");
        }
    }

    /// Changes the level of a wired interrupt: a global system interrupt number.
    pub(super) fn set_line(&self, line: u32, level: bool) {
        if let Err(error) = self.fd.set_irq_line(line, level) {
            tracing::debug!(%error, line, level, "KVM did not take an interrupt line");
        }
    }

    fn enable(&self, cap: u32, argument: u64) -> Result<(), kvm_ioctls::Error> {
        let mut request = kvm_enable_cap { cap, ..kvm_enable_cap::default() };
        request.args[0] = argument;
        self.fd.enable_cap(&request)
    }

    /// Wires as the ACPI tables say: the interval timer's IRQ 0 is input 2 of the I/O APIC.
    fn route_lines(&self) -> Result<(), KvmError> {
        let entries: Vec<kvm_irq_routing_entry> = (0..IO_APIC_INPUTS).flat_map(wires).collect();
        let routing = KvmIrqRouting::from_entries(&entries).expect("a few dozen entries fit");
        self.fd.set_gsi_routing(&routing).map_err(KvmError::refused("route interrupts"))
    }

    fn add_memory(&self) -> Result<(), KvmError> {
        for (slot, region) in self.ram.iter().enumerate() {
            let address =
                region.get_host_address(MemoryRegionAddress(0)).expect("every region starts somewhere");
            let region = kvm_userspace_memory_region {
                slot: slot as u32,
                flags: 0,
                guest_phys_addr: region.start_addr().0,
                memory_size: region.len(),
                userspace_addr: address as u64,
            };
            // SAFETY: the range is the whole of a mapping that `self.ram` keeps alive for longer than the
            // virtual machine, regions do not overlap, and nobody makes Rust references into guest memory.
            unsafe { self.fd.set_user_memory_region(region) }
                .map_err(KvmError::refused("map guest memory"))?;
        }
        Ok(())
    }

    /// Registers that are not the CPU's own come to us, and so do those that KVM does not know.
    fn claim_msrs(&self, system_calls: bool) -> Result<(), KvmError> {
        let reasons = KVM_MSR_EXIT_REASON_INVAL | KVM_MSR_EXIT_REASON_UNKNOWN | KVM_MSR_EXIT_REASON_FILTER;
        self.enable(KVM_CAP_X86_USER_SPACE_MSR, reasons.into())
            .and_then(|()| msr::filter(&self.fd, system_calls))
            .map_err(KvmError::refused("hand over model-specific registers"))
    }
}

/// What line `line` is connected to.
fn wires(line: u32) -> Vec<kvm_irq_routing_entry> {
    let wire = |irqchip, pin| {
        let mut entry =
            kvm_irq_routing_entry { gsi: line, type_: KVM_IRQ_ROUTING_IRQCHIP, ..Default::default() };
        entry.u.irqchip = kvm_irq_routing_irqchip { irqchip, pin };
        entry
    };
    let legacy = match line {
        TIMER_LINE => Some(wire(KVM_IRQCHIP_PIC_MASTER, 0)),
        1..=7 => Some(wire(KVM_IRQCHIP_PIC_MASTER, line)),
        8..=15 => Some(wire(KVM_IRQCHIP_PIC_SLAVE, line - 8)),
        _ => None,
    };
    legacy.into_iter().chain([wire(KVM_IRQCHIP_IOAPIC, line)]).collect()
}

const IO_APIC_INPUTS: u32 = 24;
/// The interval timer's input of the I/O APIC.
const TIMER_LINE: u32 = 2;
/// Three pages, and one page, that KVM needs on Intel for itself; where firmware would be.
const TASK_STATE: usize = 0xfffb_d000;
const IDENTITY_MAP: u64 = 0xfffb_c000;
