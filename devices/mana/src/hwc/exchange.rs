//! One request and its response.

use nicvisor_core::fault::{CommandAction, WireView};
use nicvisor_core::{Context, DeviceEvent, DmaError, EventKind, Rule};
use zerocopy::{FromBytes, IntoBytes};

use super::delay::Delayed;
use super::{COMPLETION_QUEUE, PF_COMPLETION_QUEUE, PF_RECEIVE_QUEUE, RECEIVE_QUEUE, SEND_QUEUE};
use crate::control::{Answer, Failure, Request};
use crate::device::Mana;
use crate::faults::{CHANNEL, answer_fields};
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
        let length = bytes.as_ref().map_or(0, Vec::len);
        self.complete(context, SEND_QUEUE, oob(SEND_QUEUE, wqe, length));
        let Some(bytes) = bytes else { return };
        let Some(request) = Request::parse(&bytes) else { return };
        if let Some(problem) = self.wrong_header(&request) {
            report(context, &rules::HWC_MESSAGE, problem, &request.bytes());
        }
        let action = self.action(context, &request);
        match action.due(context.now) {
            Some(due) if due <= context.now => self.carry_out(context, &request, &action),
            _ if self.state.channel.delayed.len() >= MOST_DELAYED => (),
            due => self.state.channel.delayed.push(Delayed { due, action, request: bytes }),
        }
    }

    /// What is wrong with the headers of a request, if anything is.
    fn wrong_header(&self, request: &Request) -> Option<String> {
        let RequestHeader { req, resp, .. } = &request.header;
        if req.msg_size.get() as usize != request.length() {
            return Some(format!("{} bytes sent, {} by the header", request.length(), req.msg_size));
        }
        if (req.hdr_type.get(), resp.hdr_type.get()) != (0, 0) {
            return Some(format!("header types {} and {}, not 0", req.hdr_type, resp.hdr_type));
        }
        if req.msg_type != resp.msg_type || req.msg_version.get() == 0 || resp.msg_version.get() == 0 {
            let versions = (req.msg_version, resp.msg_version);
            return Some(format!(
                "request {:#x} expects an answer to {:#x}, in versions {versions:?}",
                req.msg_type, resp.msg_type
            ));
        }
        let depth = self.config.channel.depth;
        (req.hwc_msg_id.get() >= depth).then(|| format!("message {} of {depth} at a time", req.hwc_msg_id))
    }

    /// What faults make of a request.
    fn action(&mut self, context: &Context<'_>, request: &Request) -> CommandAction {
        let Some(kind) = request.kind() else { return CommandAction::default() };
        let fields = WireView::new(kind.request(), request.body());
        self.state.queues.faults.commands.command(context.now, CHANNEL, kind.name(), &fields)
    }

    /// Carries a request out and answers it, as faults want it.
    pub(super) fn carry_out(&mut self, context: &mut Context<'_>, request: &Request, action: &CommandAction) {
        let result = match action.execute {
            true => self.execute(context, request),
            false => Ok(Answer::done()),
        };
        if let Err(failure) = &result {
            record(context, request, failure);
        }
        let mut response = request.respond(&result, self.config.channel.max_response as usize);
        if let Some(status) = action.status {
            response[STATUS_OFFSET..STATUS_OFFSET + 4].copy_from_slice(&(status as u32).to_le_bytes());
        }
        let status = status_of(&response);
        self.state.channel.requests += 1;
        let good = [Status::Success as u32, Status::MoreEntries as u32];
        self.state.channel.failures += u64::from(!good.contains(&status));
        for _ in 0..action.answers {
            self.deliver(context, request, &response, action);
        }
        observe(context, request, action, status);
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
    fn deliver(
        &mut self,
        context: &mut Context<'_>,
        request: &Request,
        response: &[u8],
        action: &CommandAction,
    ) {
        let Some(queue) = self.state.queues.works.get_mut(&RECEIVE_QUEUE) else { return };
        let Some(wqe) = queue.next(context) else {
            // Where faults make one answer two, the driver cannot know.
            if action.answers == 1 {
                report(context, &rules::HWC_RECEIVE, "no receive buffer is posted".to_owned(), response);
            }
            return;
        };
        let room: u64 = wqe.sges.iter().map(|sge| u64::from(sge.size)).sum();
        if room < response.len() as u64 {
            let message = format!("{} bytes of response for a buffer of {room}", response.len());
            return report(context, &rules::HWC_RECEIVE, message, &wqe.raw);
        }
        let response = rewritten(request, action, response);
        if let Err(error) = scatter(context, &wqe.sges, &response) {
            return report(context, &rules::HWC_RECEIVE, error.to_string(), &wqe.raw);
        }
        self.complete(context, RECEIVE_QUEUE, oob(RECEIVE_QUEUE, &wqe, response.len()));
    }

    /// Completes an entry of one of the channel's queues.
    fn complete(&mut self, context: &mut Context<'_>, queue: u32, oob: RxOob) {
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

/// What the completion of an entry says.
fn oob(queue: u32, wqe: &Wqe, length: usize) -> RxOob {
    let source = if queue == SEND_QUEUE { SEND_QUEUE } else { PF_RECEIVE_QUEUE };
    RxOob {
        flags: WHOLE_MESSAGE.into(),
        source: source.into(),
        reserved: 0.into(),
        wqe_offset: wqe.offset.into(),
        wqe_addr_high: 0.into(),
        client_data_unit: u32::from(wqe.header.client_data_unit).into(),
        tx_oob_data_size: (length as u32).into(),
        chunk_offset: 0.into(),
    }
}

/// An answer with the fields changed that faults change.
fn rewritten(request: &Request, action: &CommandAction, response: &[u8]) -> Vec<u8> {
    let mut response = response.to_vec();
    if let Some(kind) = request.kind() {
        action.rewrite(&mut WireView::new(&answer_fields(kind), &mut response));
    }
    response
}

fn status_of(response: &[u8]) -> u32 {
    let word = response.get(STATUS_OFFSET..).and_then(|bytes| bytes.first_chunk());
    word.map_or(0, |word| u32::from_le_bytes(*word))
}

/// Tells what became of a request.
fn observe(context: &mut Context<'_>, request: &Request, action: &CommandAction, status: u32) {
    context.observe(EventKind::Command, || {
        let kind = request.kind();
        let event = DeviceEvent::new(EventKind::Command, kind.map_or("unknown", |kind| kind.name()));
        let fields = kind.map_or(&[][..], |kind| kind.request()).iter();
        let values = fields.filter_map(|field| Some((field.name(), field.read(request.body())?)));
        values.fold(event.with("status", status), |event, (name, value)| event.with(name, value))
    });
    context.observe_faults(&action.faults);
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
    report(context, rule, format!("{name}: {message}"), &request.bytes());
}

fn report(context: &mut Context<'_>, rule: &Rule, message: String, descriptor: &[u8]) {
    context.report(rule, message, |finding| {
        finding.queue = CHANNEL.to_owned();
        finding.descriptor = descriptor.to_vec();
    });
}

/// Requests beyond that many that wait are lost.
const MOST_DELAYED: usize = 256;
/// Where a response header has its status.
const STATUS_OFFSET: usize = 24;
