//! Doorbell pages, protection domains, memory regions and device memory: what RDMA needs. Nothing here moves
//! data, but every object is accounted for.

use super::{Answer, Failure, Request};
use crate::device::Mana;
use crate::objects::{MemoryRegion, Taker};
use crate::wire::Status;
use crate::wire::gdma_requests::{
    AllocDm, AllocateResourceRange, CreateMr, CreateMrResponse, CreatePd, CreatePdResponse,
    DestroyResourceRange, Handle, Index, RESOURCE_DOORBELL_PAGE, mr_type,
};

impl Mana {
    /// `GDMA_ALLOCATE_RESOURCE_RANGE`.
    pub(super) fn allocate_resource_range(&mut self, request: &Request) -> Result<Answer, Failure> {
        let asked: AllocateResourceRange = request.read()?;
        check_resource(asked.resource_type.get())?;
        let (count, alignment) = (asked.num_resources.get(), asked.alignment.get());
        let end = self.config.limits.doorbell_pages;
        if count == 0 || count > end {
            return Err(Failure::parameter(format!("{count} doorbell pages of {end}")));
        }
        match self.state.objects.doorbells.allocate(count, alignment, end) {
            Some(first) => Ok(Answer::new(&Index { index: first.into() })),
            None => Err(Failure::refusal(Status::NoResources)),
        }
    }

    /// `GDMA_DESTROY_RESOURCE_RANGE`.
    pub(super) fn destroy_resource_range(&mut self, request: &Request) -> Result<Answer, Failure> {
        let range: DestroyResourceRange = request.read()?;
        check_resource(range.resource_type.get())?;
        let (first, count) = (range.allocated_resources.get(), range.num_resources.get());
        match self.state.objects.doorbells.release(first, count) {
            true => Ok(Answer::done()),
            false => {
                let message =
                    format!("{count} doorbell pages from {first} on given back, which were not allocated so");
                Err(Failure::unknown(message))
            }
        }
    }

    /// `GDMA_CREATE_PD`.
    pub(super) fn create_domain(&mut self, request: &Request) -> Result<Answer, Failure> {
        request.read::<CreatePd>()?;
        if self.state.objects.domains.created.len() >= MAX_DOMAINS {
            return Err(Failure::refusal(Status::NoResources));
        }
        let Some(number) = self.state.objects.domains.new_number() else {
            return Err(Failure::refusal(Status::NoResources));
        };
        let handle = self.state.objects.new_handle();
        self.state.objects.domains.created.insert(handle, number);
        Ok(Answer::new(&CreatePdResponse {
            pd_handle: handle.into(),
            pd_id: number.into(),
            reserved: 0.into(),
        }))
    }

    /// `GDMA_DESTROY_PD`.
    pub(super) fn destroy_domain(&mut self, request: &Request) -> Result<Answer, Failure> {
        let handle = request.read::<Handle>()?.handle.get();
        let domains = &mut self.state.objects.domains;
        let Some(number) = domains.created.get(&handle) else {
            return Err(Failure::unknown(format!(
                "protection domain {handle:#x} destroyed, which does not exist"
            )));
        };
        let regions = domains.memory_regions.values().filter(|region| region.domain == handle).count();
        let queues =
            self.state.queues.events.values().filter(|queue| queue.owner.protection_domain == *number);
        let queues = queues.count();
        if regions + queues != 0 {
            let message =
                format!("protection domain {handle:#x} with {regions} memory regions and {queues} queues");
            return Err(Failure::in_use(message));
        }
        domains.created.remove(&handle);
        Ok(Answer::done())
    }

    /// `GDMA_CREATE_MR`.
    pub(super) fn create_memory_region(&mut self, request: &Request) -> Result<Answer, Failure> {
        // A region of all of guest memory may end with the type.
        let asked: CreateMr = request.read_at_least(MR_WITHOUT_OBJECT)?;
        let (domain, object) = (asked.pd_handle.get(), asked.object_handle.get());
        let objects = &mut self.state.objects;
        if !objects.domains.created.contains_key(&domain) {
            return Err(Failure::unknown(format!("memory region in protection domain {domain:#x}")));
        }
        if objects.domains.memory_regions.len() >= self.config.limits.memory_regions as usize {
            return Err(Failure::refusal(Status::NoResources));
        }
        let mut device_memory = None;
        match asked.mr_type.get() {
            mr_type::GVA | mr_type::ZBVA => _ = objects.regions.get(object)?,
            mr_type::DM if objects.domains.device_memory.contains_key(&object) => {
                device_memory = Some(object)
            }
            mr_type::DM => {
                return Err(Failure::unknown(format!("memory region of device memory {object:#x}")));
            }
            mr_type::GPA | mr_type::MW1 | mr_type::MW2 => (),
            kind => return Err(Failure::parameter(format!("memory region of type {kind}"))),
        }
        let handle = objects.new_handle();
        if matches!(asked.mr_type.get(), mr_type::GVA | mr_type::ZBVA) {
            objects.regions.take(object, Taker::MemoryRegion(handle))?;
        }
        objects.domains.memory_regions.insert(handle, MemoryRegion { domain, device_memory });
        let key = handle as u32;
        Ok(Answer::new(&CreateMrResponse { mr_handle: handle.into(), lkey: key.into(), rkey: key.into() }))
    }

    /// `GDMA_DESTROY_MR`.
    pub(super) fn destroy_memory_region(&mut self, request: &Request) -> Result<Answer, Failure> {
        let handle = request.read::<Handle>()?.handle.get();
        let objects = &mut self.state.objects;
        if objects.domains.memory_regions.remove(&handle).is_none() {
            return Err(Failure::unknown(format!(
                "memory region {handle:#x} destroyed, which does not exist"
            )));
        }
        objects.regions.release(Taker::MemoryRegion(handle));
        Ok(Answer::done())
    }

    /// `GDMA_ALLOC_DM`.
    pub(super) fn allocate_device_memory(&mut self, request: &Request) -> Result<Answer, Failure> {
        let asked: AllocDm = request.read()?;
        let (length, alignment) = (asked.length.get(), asked.alignment.get());
        if length == 0 || !alignment.max(1).is_power_of_two() {
            return Err(Failure::parameter(format!(
                "{length} bytes of device memory aligned to {alignment}"
            )));
        }
        let used: u64 = self.state.objects.domains.device_memory.values().sum();
        if used.saturating_add(length) > DEVICE_MEMORY {
            return Err(Failure::refusal(Status::NoResources));
        }
        let handle = self.state.objects.new_handle();
        self.state.objects.domains.device_memory.insert(handle, length);
        Ok(Answer::new(&Handle { handle: handle.into() }))
    }

    /// `GDMA_DESTROY_DM`.
    pub(super) fn free_device_memory(&mut self, request: &Request) -> Result<Answer, Failure> {
        let handle = request.read::<Handle>()?.handle.get();
        let domains = &mut self.state.objects.domains;
        if !domains.device_memory.contains_key(&handle) {
            return Err(Failure::unknown(format!("device memory {handle:#x} freed, which does not exist")));
        }
        if domains.memory_regions.values().any(|region| region.device_memory == Some(handle)) {
            return Err(Failure::in_use(format!(
                "device memory {handle:#x} freed with memory regions on it"
            )));
        }
        domains.device_memory.remove(&handle);
        Ok(Answer::done())
    }
}

fn check_resource(kind: u32) -> Result<(), Failure> {
    match kind {
        RESOURCE_DOORBELL_PAGE => Ok(()),
        _ => Err(Failure::parameter(format!("a range of resources of type {kind}"))),
    }
}

/// Bytes of a memory region's request up to the type.
const MR_WITHOUT_OBJECT: usize = 12;
/// Bytes of device memory in all; pieces of it are at least a byte, so this also bounds their number.
const DEVICE_MEMORY: u64 = 256 << 10;
/// Most protection domains that a driver can create.
const MAX_DOMAINS: usize = 4096;
