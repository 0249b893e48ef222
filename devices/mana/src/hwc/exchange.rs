//! One request and its response.

use nicvisor_core::{Context, DmaError, Rule};
use zerocopy::{FromBytes, IntoBytes};

use super::{COMPLETION_QUEUE, PF_COMPLETION_QUEUE, PF_RECEIVE_QUEUE, RECEIVE_QUEUE, SEND_QUEUE};
use crate::control::{Failure, Request};
use crate::device::Mana;
use crate::queue::{Completion, Sge, Wqe};
use crate::rules::control as rules;
use crate::wire::Status;
use crate::wire::gdma_requests::RequestHeader;
use crate::wire::hwc::{RxOob, TxOob, WHOLE_MESSAGE};

impl Mana {
    /// Carries out the requests that the driver has posted.
    pub(crate) fn run_channel(&mut self, context: &mut Context<'_>) {
        while let Some(wqe) =
            self.state.queues.works.get_mut(&SEND_QUEUE).and_then(|queue| queue.next(context))
        {
            self.exchange(context, &wqe);
        }
    }

    fn exchange(&mut self, context: &mut Context<'_>, wqe: &Wqe) {
        self.check_oob(context, wqe);
        let bytes = self.fetch(context, wqe);
        self.complete(context, SEND_QUEUE, wqe, bytes.as_ref().map_or(0, Vec::len));
        let Some(request) = bytes.and_then(|bytes| Request::parse(&bytes)) else { return };
        if request.header.req.msg_size.get() as usize != request.length() {
            let message =
                format!("{} bytes sent, {} by the header", request.length(), request.header.req.msg_size);
            report(context, &rules::HWC_MESSAGE, message, &request.bytes());
        }
        let result = self.execute(context, &request);
        self.state.channel.requests += 1;
        if let Err(failure) = &result {
            self.state.channel.failures += 1;
            record(context, &request, failure);
        }
        let response = request.respond(&result, self.config.channel.max_response as usize);
        self.deliver(context, &response);
    }

    /// The message of a request; `None` if there is none that can be answered.
    fn fetch(&self, context: &mut Context<'_>, wqe: &Wqe) -> Option<Vec<u8>> {
        let length: u64 = wqe.sges.iter().map(|sge| u64::from(sge.size)).sum();
        let header = size_of::<RequestHeader>() as u64;
        if !(header..=self.config.channel.max_request.into()).contains(&length) {
            report(context, &rules::HWC_MESSAGE, format!("a request of {length} bytes"), &wqe.raw);
            return None;
        }
        match gather(context, &wqe.sges) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                report(context, &rules::HWC_MESSAGE, error.to_string(), &wqe.raw);
                None
            }
        }
    }

    /// Writes a response to the next receive buffer.
    fn deliver(&mut self, context: &mut Context<'_>, response: &[u8]) {
        let Some(queue) = self.state.queues.works.get_mut(&RECEIVE_QUEUE) else { return };
        let Some(wqe) = queue.next(context) else {
            return report(context, &rules::HWC_RECEIVE, "no receive buffer is posted".to_owned(), response);
        };
        let room: u64 = wqe.sges.iter().map(|sge| u64::from(sge.size)).sum();
        if room < response.len() as u64 {
            let message = format!("{} bytes of response for a buffer of {room}", response.len());
            return report(context, &rules::HWC_RECEIVE, message, &wqe.raw);
        }
        if let Err(error) = scatter(context, &wqe.sges, response) {
            return report(context, &rules::HWC_RECEIVE, error.to_string(), &wqe.raw);
        }
        self.complete(context, RECEIVE_QUEUE, &wqe, response.len());
    }

    /// Completes an entry of one of the channel's queues.
    fn complete(&mut self, context: &mut Context<'_>, queue: u32, wqe: &Wqe, length: usize) {
        let source = if queue == SEND_QUEUE { SEND_QUEUE } else { PF_RECEIVE_QUEUE };
        let oob = RxOob {
            flags: WHOLE_MESSAGE.into(),
            source: source.into(),
            reserved: 0.into(),
            wqe_offset: wqe.offset.into(),
            wqe_addr_high: 0.into(),
            client_data_unit: u32::from(wqe.header.client_data_unit).into(),
            tx_oob_data_size: (length as u32).into(),
            chunk_offset: 0.into(),
        };
        let mut payload = [0; 60];
        payload[..size_of::<RxOob>()].copy_from_slice(oob.as_bytes());
        let completion = Completion { work_queue: queue, is_send: queue == SEND_QUEUE, payload };
        self.state.queues.complete(context, COMPLETION_QUEUE, completion);
    }

    fn check_oob(&self, context: &mut Context<'_>, wqe: &Wqe) {
        let Ok((oob, _)) = TxOob::read_from_prefix(&wqe.oob) else {
            let message = format!("an OOB of {} bytes", wqe.oob.len());
            return report(context, &rules::HWC_OOB, message, &wqe.raw);
        };
        let physical = self.config.function.is_physical();
        let expected = if physical { [PF_RECEIVE_QUEUE, PF_COMPLETION_QUEUE] } else { [0, 0] };
        let expected = [expected[0], expected[1], COMPLETION_QUEUE, SEND_QUEUE];
        let found = [oob.vrq, oob.vrcq, oob.vscq, oob.vsq].map(|word| word.get());
        if found != expected {
            let message = format!("vrq, vrcq, vscq, vsq {found:#x?}, not {expected:#x?}");
            report(context, &rules::HWC_OOB, message, &wqe.raw);
        }
    }
}

fn gather(context: &Context<'_>, sges: &[Sge]) -> Result<Vec<u8>, DmaError> {
    let mut bytes = Vec::new();
    for sge in sges {
        let start = bytes.len();
        bytes.resize(start + sge.size as usize, 0);
        context.dma.read(sge.address, &mut bytes[start..])?;
    }
    Ok(bytes)
}

fn scatter(context: &Context<'_>, sges: &[Sge], mut bytes: &[u8]) -> Result<(), DmaError> {
    for sge in sges {
        let (part, rest) = bytes.split_at(bytes.len().min(sge.size as usize));
        context.dma.write(sge.address, part)?;
        bytes = rest;
    }
    Ok(())
}

fn record(context: &mut Context<'_>, request: &Request, failure: &Failure) {
    let Some((rule, message)) = &failure.breach else { return };
    let name = request.kind().map_or("unknown", |kind| kind.name());
    let status = failure.status;
    let unsupported = if status == Status::Unsupported { " (unsupported)" } else { "" };
    report(context, rule, format!("{name}: {message}{unsupported}"), &request.bytes());
}

fn report(context: &mut Context<'_>, rule: &Rule, message: String, descriptor: &[u8]) {
    context.report(rule, message, |finding| {
        finding.queue = "hwc".to_owned();
        finding.descriptor = descriptor.to_vec();
    });
}
