//! A request as it came and an answer as it goes.

use nicvisor_core::Rule;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::objects::RegionError;
use crate::rules::control as rules;
use crate::wire::gdma_requests::{MessageHeader, RequestHeader, ResponseHeader};
use crate::wire::{RequestType, Status};

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Its header.
    pub(crate) header: RequestHeader,
    /// What follows.
    body: Vec<u8>,
}

impl Request {
    /// The request in `bytes`; `None` if there is not even a header.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Request> {
        let (header, body) = RequestHeader::read_from_prefix(bytes).ok()?;
        Some(Request { header, body: body.to_vec() })
    }

    /// What is asked for; `None` for something that the device does not have.
    pub(crate) fn kind(&self) -> Option<RequestType> {
        RequestType::from_number(self.header.req.msg_type.get())
    }

    /// Version of the message.
    pub(crate) fn version(&self) -> u16 {
        self.header.req.msg_version.get()
    }

    /// The first bytes behind the header as one of the wire structures.
    pub(crate) fn read<T: FromBytes + FromZeros + IntoBytes>(&self) -> Result<T, Failure> {
        self.read_at_least(size_of::<T>())
    }

    /// The same, where earlier versions of the message were shorter, but at least `least` bytes long. What is
    /// missing is zero.
    pub(crate) fn read_at_least<T: FromBytes + FromZeros + IntoBytes>(
        &self,
        least: usize,
    ) -> Result<T, Failure> {
        if self.body.len() < least {
            let message = format!("{} bytes behind the header, not {least}", self.body.len());
            return Err(Failure::breach(Status::InvalidMessage, &rules::REQUEST_SIZE, message));
        }
        let mut object = T::new_zeroed();
        let length = size_of::<T>().min(self.body.len());
        object.as_mut_bytes()[..length].copy_from_slice(&self.body[..length]);
        Ok(object)
    }

    /// `count` 64-bit numbers from `offset` bytes behind the start of the message on.
    pub(crate) fn numbers(&self, offset: usize, count: usize) -> Result<Vec<u64>, Failure> {
        let bytes = offset.checked_sub(size_of::<RequestHeader>()).and_then(|start| {
            let end = start.checked_add(count.checked_mul(8)?)?;
            self.body.get(start..end)
        });
        match bytes {
            Some(bytes) => Ok(bytes.as_chunks().0.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect()),
            None => {
                let message = format!("{count} entries from {offset} on in {} bytes", self.length());
                Err(Failure::breach(Status::InvalidMessage, &rules::REQUEST_SIZE, message))
            }
        }
    }

    /// What follows the header.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Bytes of the message.
    pub(crate) fn length(&self) -> usize {
        size_of::<RequestHeader>() + self.body.len()
    }

    /// The whole message, for findings.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        [self.header.as_bytes(), &self.body].concat()
    }

    /// The response to this request: as long as the driver expects it, but never longer than `most` bytes.
    pub(crate) fn respond(&self, result: &Result<Answer, Failure>, most: usize) -> Vec<u8> {
        let expected = &self.header.resp;
        let (status, version, body) = match result {
            Ok(answer) => (answer.status, answer.version, &answer.body[..]),
            Err(failure) => (failure.status, 1, &[][..]),
        };
        let header = size_of::<ResponseHeader>();
        let length = (expected.msg_size.get() as usize).clamp(header, most.max(header));
        let head = ResponseHeader {
            response: MessageHeader {
                hdr_type: 0.into(),
                msg_type: self.header.req.msg_type,
                msg_version: version.min(expected.msg_version.get().max(1)).into(),
                hwc_msg_id: self.header.req.hwc_msg_id,
                msg_size: (length as u32).into(),
            },
            dev_id: self.header.dev_id,
            activity_id: self.header.activity_id,
            status: (status as u32).into(),
            reserved: 0.into(),
        };
        let mut response = [head.as_bytes(), body].concat();
        response.resize(length, 0);
        response
    }
}

/// How a request ended well.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    status: Status,
    version: u16,
    body: Vec<u8>,
}

impl Answer {
    /// Done; nothing more to say.
    pub(crate) fn done() -> Answer {
        Answer { status: Status::Success, version: 1, body: Vec::new() }
    }

    /// Done, and this is the answer.
    pub(crate) fn new(body: &(impl IntoBytes + Immutable + ?Sized)) -> Answer {
        Answer { body: body.as_bytes().to_vec(), ..Answer::done() }
    }

    /// The answer is of this version, unless the driver knows only earlier ones.
    pub(crate) fn version(self, version: u16) -> Answer {
        Answer { version, ..self }
    }

    /// The answer has another status than success.
    pub(crate) fn status(self, status: Status) -> Answer {
        Answer { status, ..self }
    }
}

/// Why a request failed: what the driver is told, and what is recorded.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What the driver is told.
    pub(crate) status: Status,
    /// The rule that the driver broke, and how; nothing where failing is the normal answer.
    pub(crate) breach: Option<(&'static Rule, String)>,
}

impl Failure {
    /// A failure that is the driver's fault.
    pub(crate) fn breach(status: Status, rule: &'static Rule, message: impl Into<String>) -> Failure {
        Failure { status, breach: Some((rule, message.into())) }
    }

    /// A parameter that is not within what the device described.
    pub(crate) fn parameter(message: impl Into<String>) -> Failure {
        Failure::breach(Status::InvalidParameter, &rules::REQUEST_PARAMETER, message)
    }

    /// An object that does not exist.
    pub(crate) fn unknown(message: impl Into<String>) -> Failure {
        Failure::breach(Status::InvalidHandle, &rules::OBJECT_UNKNOWN, message)
    }

    /// An object that something else still uses.
    pub(crate) fn in_use(message: impl Into<String>) -> Failure {
        Failure::breach(Status::InvalidState, &rules::OBJECT_IN_USE, message)
    }

    /// A refusal that a driver has to expect.
    pub(crate) fn refusal(status: Status) -> Failure {
        Failure { status, breach: None }
    }
}

impl From<RegionError> for Failure {
    fn from(error: RegionError) -> Failure {
        let message = error.to_string();
        match error {
            RegionError::Unknown(_) | RegionError::Taken(..) => Failure::unknown(message),
            RegionError::Full(_) => Failure::refusal(Status::NoResources),
            RegionError::Incomplete(..) | RegionError::TooMany(..) | RegionError::Unaligned(..) => {
                Failure::breach(Status::InvalidParameter, &rules::DMA_REGION, message)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(expected: u32, version: u16) -> Request {
        let mut bytes = [0; 48];
        bytes[4] = 2;
        bytes[10] = 7;
        bytes[24..26].copy_from_slice(&version.to_le_bytes());
        bytes[28..32].copy_from_slice(&expected.to_le_bytes());
        bytes[36] = 9;
        Request::parse(&bytes).unwrap()
    }

    #[test]
    fn a_response_is_as_long_and_of_such_a_version_as_the_driver_expects() {
        for (expected, version, length) in [(40, 1, 40), (44, 2, 44), (0, 0, 32), (9999, 3, 64)] {
            let answer = Answer::new(&[0x1122_3344_5566_7788_u64.to_le()]).version(2);
            let response = request(expected, version).respond(&Ok(answer), 64);
            assert_eq!(response.len(), length);
            let (header, _) = ResponseHeader::read_from_prefix(&response).unwrap();
            assert_eq!(header.response.msg_size.get() as usize, length);
            assert_eq!(header.response.msg_version.get(), version.clamp(1, 2));
            assert_eq!((header.response.hwc_msg_id.get(), header.activity_id.get()), (7, 9));
            assert_eq!((header.response.msg_type.get(), header.status.get()), (2, 0));
        }
    }

    #[test]
    fn a_failure_has_its_status_and_no_body() {
        let response = request(40, 1).respond(&Err(Failure::refusal(Status::Unsupported)), 4096);
        assert_eq!(response[24..28], [0xff; 4]);
        assert_eq!(response[32..], [0; 8]);
    }

    #[test]
    fn lists_that_do_not_fit_are_refused() {
        let request = request(40, 1);
        assert_eq!(request.numbers(40, 1).unwrap(), [0]);
        for (offset, count) in [(40, 2), (39, 1), (0, 1), (usize::MAX, 1), (41, 1), (40, usize::MAX)] {
            assert!(request.numbers(offset, count).is_err(), "{offset} {count}");
        }
        assert!(request.read::<[u8; 9]>().is_err());
        assert!(request.read_at_least::<[u8; 9]>(8).is_ok());
    }
}
