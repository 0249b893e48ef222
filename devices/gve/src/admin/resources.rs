//! Device resources: notification blocks and counters; and page lists.

use nicvisor_core::Context;
use nicvisor_core::fault::CommandAction;
use serde::{Deserialize, Serialize};

use super::{Failure, write_answer};
use crate::buffers::{PAGE, PageList};
use crate::device::Gve;
use crate::doorbells;
use crate::interrupts::NotifyBlock;
use crate::rules;
use crate::wire::admin::{
    ConfigureDeviceResources, IRQ_DB_INDEX, Id, PARAMETER_MTU, RAW_ADDRESSING, RegisterPageList,
    SetDriverParameter, Status,
};

/// What the driver set up before any queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resources {
    /// Notification blocks.
    pub(crate) blocks: Vec<NotifyBlock>,
    /// MSI-X vector of the first block.
    pub(crate) first_vector: u16,
    /// Event counters of TX queues (GQI): where they are, and how many.
    counter_array: u64,
    counters: u32,
}

impl Resources {
    /// MSI-X vector of link and reset notifications: before or behind those of the blocks.
    pub(crate) fn management_vector(&self) -> u16 {
        if self.first_vector == 0 { self.blocks.len() as u16 } else { 0 }
    }

    /// Those of an owner who left them behind.
    pub(crate) fn of_previous_owner() -> Resources {
        Resources { blocks: vec![NotifyBlock::default()], first_vector: 0, counter_array: 0, counters: 0 }
    }

    /// Where the event counter with this index is, if there is one.
    pub(crate) fn counter(&self, index: u32) -> Option<u64> {
        (index < self.counters).then(|| self.counter_array + 4 * u64::from(index))
    }
}

impl Gve {
    /// `GVE_ADMINQ_CONFIGURE_DEVICE_RESOURCES`.
    pub(super) fn configure_resources(
        &mut self,
        context: &mut Context<'_>,
        command: ConfigureDeviceResources,
        action: &CommandAction,
    ) -> Result<(), Failure> {
        if self.state.resources.is_some() {
            let message = "device resources are configured already";
            return Err(Failure::breach(Status::AlreadyExists, &rules::ADMIN_ORDER, message));
        }
        if command.queue_format != self.config.format as u8 {
            let message = format!("the driver chose queue format {}", command.queue_format);
            return Err(Failure::breach(Status::InvalidArgument, &rules::DRIVER_FORMAT, message));
        }
        let blocks = command.num_irq_dbs.get();
        if blocks == 0 || blocks >= self.config.vectors().into() {
            let message = format!("{blocks} notification blocks with {} vectors", self.config.vectors());
            return Err(Failure::parameter(message));
        }
        let counters = command.num_counters.get();
        if counters > u32::from(2 * self.config.max_queues) {
            return Err(Failure::parameter(format!("{counters} counters")));
        }
        if !context.dma.is_memory(command.counter_array.get(), counters as usize * 4) {
            let message = format!("counter array at {:#x}", command.counter_array.get());
            return Err(Failure::breach(Status::InternalError, &rules::ADMIN_MEMORY, message));
        }
        let stride = command.irq_db_stride.get();
        if stride < 4 || !stride.is_multiple_of(4) || stride > MAX_STRIDE {
            return Err(Failure::parameter(format!("{stride} bytes between doorbell indices")));
        }
        let first_vector = command.ntfy_blk_msix_base_idx.get();
        if first_vector > 1 {
            return Err(Failure::parameter(format!("notification blocks start at vector {first_vector}")));
        }
        for block in 0..blocks {
            let address = command.irq_db_addr.get().wrapping_add(u64::from(block) * u64::from(stride));
            let index = doorbells::interrupt_index(block).to_be_bytes();
            write_answer(context, address, IRQ_DB_INDEX, action, &index)?;
        }
        self.state.resources = Some(Resources {
            blocks: vec![NotifyBlock::default(); blocks as usize],
            first_vector: first_vector as u16,
            counter_array: command.counter_array.get(),
            counters,
        });
        Ok(())
    }

    /// `GVE_ADMINQ_DECONFIGURE_DEVICE_RESOURCES`.
    pub(super) fn deconfigure_resources(&mut self, context: &mut Context<'_>) -> Result<(), Failure> {
        if self.state.resources.is_none() {
            let message = "device resources are not configured";
            return Err(Failure::breach(Status::FailedPrecondition, &rules::ADMIN_ORDER, message));
        }
        let leftovers = self.state.leftovers();
        if !leftovers.is_empty() {
            let message = format!("device resources deconfigured with {leftovers} in place");
            return Err(Failure::breach(Status::FailedPrecondition, &rules::ADMIN_LEFTOVER, message));
        }
        self.drop_received(context, &nicvisor_core::DropReason::NOT_READY);
        self.state.resources = None;
        self.state.flow_rules.clear();
        Ok(())
    }

    /// `GVE_ADMINQ_REGISTER_PAGE_LIST`.
    pub(super) fn register_page_list(
        &mut self,
        context: &mut Context<'_>,
        command: RegisterPageList,
    ) -> Result<(), Failure> {
        let (id, pages) = (command.page_list_id.get(), command.num_pages.get());
        let registered: usize = self.state.page_lists.values().map(PageList::len).sum();
        let room = u64::from(self.config.max_registered_pages()).saturating_sub(registered as u64);
        if u64::from(pages) > room {
            let message = format!("page list {id} of {pages} pages, with room for {room}");
            return Err(Failure::breach(Status::ResourceExhausted, &rules::ADMIN_PARAMETER, message));
        }
        if self.state.page_lists.contains_key(&id) || id == RAW_ADDRESSING {
            let message = format!("page list {id} is registered already");
            return Err(Failure::breach(Status::AlreadyExists, &rules::ADMIN_OBJECT, message));
        }
        if command.page_size.get() != PAGE || pages == 0 {
            let message = format!("page list {id}: {pages} pages of {} bytes", command.page_size);
            return Err(Failure::parameter(message));
        }
        let mut bytes = vec![0; pages as usize * 8];
        context.dma.read(command.page_address_list_addr.get(), &mut bytes)?;
        let pages: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|page| u64::from_be_bytes(*page)).collect();
        let is_page = |page: &u64| page.is_multiple_of(PAGE) && context.dma.is_memory(*page, PAGE as usize);
        if let Some(page) = pages.iter().find(|page| !is_page(page)) {
            let message = format!("page list {id} with a page at {page:#x}");
            return Err(Failure::breach(Status::InvalidArgument, &rules::ADMIN_MEMORY, message));
        }
        self.state.page_lists.insert(id, PageList::new(pages));
        Ok(())
    }

    /// `GVE_ADMINQ_UNREGISTER_PAGE_LIST`.
    pub(super) fn unregister_page_list(&mut self, command: Id) -> Result<(), Failure> {
        let id = command.id.get();
        let tx = self.state.tx.iter().flatten().any(|queue| queue.page_list == Some(id));
        if tx || self.state.rx.iter().flatten().any(|queue| queue.page_list == Some(id)) {
            let message = format!("page list {id} unregistered while a queue uses it");
            return Err(Failure::breach(Status::FailedPrecondition, &rules::ADMIN_LEFTOVER, message));
        }
        match self.state.page_lists.remove(&id) {
            Some(_) => Ok(()),
            None => {
                let message = format!("page list {id} was never registered");
                Err(Failure::breach(Status::NotFound, &rules::ADMIN_OBJECT, message))
            }
        }
    }

    /// `GVE_ADMINQ_SET_DRIVER_PARAMETER`.
    pub(super) fn set_driver_parameter(&mut self, command: SetDriverParameter) -> Result<(), Failure> {
        let (kind, value) = (command.parameter_type.get(), command.parameter_value.get());
        if kind != PARAMETER_MTU {
            return Err(Failure::parameter(format!("driver parameter {kind}")));
        }
        if value > self.config.mtu.into() {
            let message = format!("MTU {value}, above {}", self.config.mtu);
            return Err(Failure::breach(Status::OutOfRange, &rules::ADMIN_PARAMETER, message));
        }
        self.state.driver_mtu = Some(value as u16);
        Ok(())
    }
}

/// The driver spaces doorbell indices by a cache line.
const MAX_STRIDE: u32 = 4096;
