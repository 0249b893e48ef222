//! DMA regions.

use super::{Answer, Failure, Request};
use crate::device::Mana;
use crate::features::Feature;
use crate::objects::Region;
use crate::rules::control as rules;
use crate::wire::Status;
use crate::wire::gdma_requests::{AddPages, CreateDmaRegion, Handle, RequestHeader};

impl Mana {
    /// `GDMA_CREATE_DMA_REGION`.
    pub(super) fn create_dma_region(&mut self, request: &Request) -> Result<Answer, Failure> {
        let asked: CreateDmaRegion = request.read()?;
        let count = asked.page_addr_list_len.get();
        let pages =
            request.numbers(size_of::<RequestHeader>() + size_of::<CreateDmaRegion>(), count as usize)?;
        let mut region = self.check_extent(&asked)?;
        crate::objects::check_pages(&region, &pages)?;
        let regions = &self.state.objects.regions;
        if regions.count() >= self.config.limits.memory_regions as usize {
            return Err(Failure::refusal(Status::NoResources));
        }
        regions.has_room(pages.len())?;
        region.pages = pages;
        let status = if region.is_complete() { Status::Success } else { Status::MoreEntries };
        let handle = self.state.objects.new_handle();
        self.state.objects.regions.insert(handle, region);
        Ok(Answer::new(&Handle { handle: handle.into() }).status(status))
    }

    /// `GDMA_DMA_REGION_ADD_PAGES`.
    pub(super) fn add_pages(&mut self, request: &Request) -> Result<Answer, Failure> {
        let asked: AddPages = request.read()?;
        let count = asked.page_addr_list_len.get();
        let pages = request.numbers(size_of::<RequestHeader>() + size_of::<AddPages>(), count as usize)?;
        let complete = self.state.objects.regions.add_pages(asked.dma_region_handle.get(), &pages)?;
        Ok(Answer::done().status(if complete { Status::Success } else { Status::MoreEntries }))
    }

    /// `GDMA_DESTROY_DMA_REGION`.
    pub(super) fn destroy_dma_region(&mut self, request: &Request) -> Result<Answer, Failure> {
        self.state.objects.regions.destroy(request.read::<Handle>()?.handle.get())?;
        Ok(Answer::done())
    }

    /// The region that is asked for, without its pages.
    fn check_extent(&self, asked: &CreateDmaRegion) -> Result<Region, Failure> {
        let kind = asked.gdma_page_type.get();
        let largest = if self.offers(Feature::LargePages) { LARGEST_PAGE } else { PAGE_2M };
        if kind > largest {
            return Err(breach(format!("pages of type {kind}")));
        }
        let page_size = 4096 << kind;
        let (length, offset, page_count) =
            (asked.length.get(), asked.offset_in_page.get(), asked.page_count.get());
        if u64::from(offset) >= page_size {
            return Err(breach(format!("offset {offset} in a page of {page_size} bytes")));
        }
        if length == 0 || length > self.config.limits.region_length {
            return Err(breach(format!("a DMA region of {length} bytes")));
        }
        if u64::from(page_count) != Region::pages_for(length, offset, page_size) {
            let message = format!(
                "{page_count} pages of {page_size} bytes for {length} bytes from {offset} in the first on"
            );
            return Err(breach(message));
        }
        Ok(Region { length, offset, page_size, page_count, pages: Vec::new() })
    }
}

fn breach(message: String) -> Failure {
    Failure::breach(Status::InvalidParameter, &rules::DMA_REGION, message)
}

/// `gdma_page_type` counts powers of two from 4 KiB on: this is 2 MiB.
const PAGE_2M: u32 = 9;
/// 2 GiB.
const LARGEST_PAGE: u32 = 19;
