//! The host's side of the conversation, without input or output of its own.
//!
//! Whoever owns the port gives the session what the guest sent ([`Session::receive`]), takes what is to be
//! sent ([`Session::outgoing`], [`Session::sent`]), and asks for events ([`Session::next_event`]). Everything
//! else only queues messages, so one thread can serve a session between two slices of the guest's time.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    CHUNK, Channel, Command, Decoder, Exit, Failure, FrameError, FromGuest, Hello, JobId, KernelLine, MAGIC,
    ModuleRequest, Power, RequestId, STDIN_WINDOW, TerminalSize, ToGuest, VERSION, frame,
};

/// The conversation with the agent of one guest.
#[derive(Debug)]
pub struct Session {
    decoder: Decoder,
    outgoing: Vec<u8>,
    sent: usize,
    ready: bool,
    next_id: u32,
    events: VecDeque<Event>,
    jobs: BTreeMap<JobId, Input>,
    puts: VecDeque<Put>,
    gets: BTreeMap<RequestId, Vec<u8>>,
}

/// Something that happened in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The guest has booted and its agent takes requests.
    Ready {
        /// The kernel's release (`uname -r`).
        kernel: String,
    },
    /// A request has been carried out, or could not be. Not used for [`Session::get_file`] that worked.
    Done {
        /// The request.
        request: RequestId,
        /// Whether it worked.
        result: Result<(), Failure>,
    },
    /// The file that [`Session::get_file`] asked for.
    File {
        /// The request.
        request: RequestId,
        /// What is in it.
        contents: Vec<u8>,
    },
    /// A command could not be started; nothing else comes from it.
    SpawnFailed {
        /// The command.
        job: JobId,
        /// The reason.
        failure: Failure,
    },
    /// A command wrote something.
    Output {
        /// The command.
        job: JobId,
        /// Where.
        channel: Channel,
        /// What.
        data: Vec<u8>,
    },
    /// A command reads its standard input: there is room again ([`Session::stdin_room`]).
    StdinRoom {
        /// The command.
        job: JobId,
    },
    /// A command has ended. Processes that it left behind may still write.
    Exited {
        /// The command.
        job: JobId,
        /// How it ended.
        exit: Exit,
    },
    /// The kernel reports trouble.
    Kernel(KernelLine),
    /// The guest is about to power off or reboot, as it was told to.
    Bye,
}

/// Why the conversation cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The agent is of another build.
    #[error(
        "the guest's agent speaks version {0} of the protocol, this program version {VERSION}: an initramfs of another build is in use"
    )]
    Version(u32),
    /// What is at the other end is not our agent.
    #[error("what answers on the agent's port is not the agent")]
    Stranger,
    /// The bytes make no sense.
    #[error("the conversation with the guest's agent is broken: {0}")]
    Frame(#[from] FrameError),
}

/// What the session knows of a command's standard input.
#[derive(Debug)]
struct Input {
    credit: usize,
    waiting: VecDeque<u8>,
    closing: bool,
    closed: bool,
}

/// A file on its way into the guest.
#[derive(Debug)]
struct Put {
    request: RequestId,
    contents: Vec<u8>,
    position: usize,
}

impl Default for Session {
    fn default() -> Session {
        Session::new()
    }
}

impl Session {
    /// Starts a conversation: greets the agent. Requests may be made at once; the agent sees them when it is
    /// ready.
    pub fn new() -> Session {
        let mut session = Session {
            decoder: Decoder::default(),
            outgoing: Vec::new(),
            sent: 0,
            ready: false,
            next_id: 1,
            events: VecDeque::new(),
            jobs: BTreeMap::new(),
            puts: VecDeque::new(),
            gets: BTreeMap::new(),
        };
        session.send(&ToGuest::Hello(Hello { magic: MAGIC, version: VERSION, kernel: String::new() }));
        session
    }

    /// Whether the agent has answered.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Takes bytes that the guest sent.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        self.decoder.feed(bytes);
        while let Some(message) = self.next_message()? {
            self.handle(message)?;
        }
        Ok(())
    }

    /// The next thing that happened.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The bytes to be sent to the guest next. Empty when there is nothing to send.
    pub fn outgoing(&mut self) -> &[u8] {
        self.fill();
        &self.outgoing[self.sent..]
    }

    /// Says how many of [`Session::outgoing`]'s bytes the guest has taken.
    pub fn sent(&mut self, bytes: usize) {
        self.sent = (self.sent + bytes).min(self.outgoing.len());
        if self.sent == self.outgoing.len() || self.sent >= SENT_KEPT {
            self.outgoing.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Runs a command.
    pub fn spawn(&mut self, command: Command) -> JobId {
        let job = JobId(self.id());
        if command.stdin || command.terminal.is_some() {
            let input = Input {
                credit: STDIN_WINDOW as usize,
                waiting: VecDeque::new(),
                closing: false,
                closed: false,
            };
            self.jobs.insert(job, input);
        }
        self.send(&ToGuest::Spawn { job, command });
        job
    }

    /// How much standard input can be given to a command now without piling up on the host.
    pub fn stdin_room(&self, job: JobId) -> usize {
        self.jobs.get(&job).map_or(0, |input| input.credit.saturating_sub(input.waiting.len()))
    }

    /// Gives standard input to a command. What exceeds [`Session::stdin_room`] waits on the host.
    pub fn write_stdin(&mut self, job: JobId, data: &[u8]) {
        if let Some(input) = self.jobs.get_mut(&job).filter(|input| !input.closing) {
            input.waiting.extend(data);
        }
        self.send_stdin(job);
    }

    /// Ends a command's standard input, after what has been given.
    pub fn close_stdin(&mut self, job: JobId) {
        if let Some(input) = self.jobs.get_mut(&job) {
            input.closing = true;
        }
        self.send_stdin(job);
    }

    /// Sends a signal to a command and all that it started.
    pub fn signal(&mut self, job: JobId, signal: i32) {
        self.send(&ToGuest::Signal { job, signal });
    }

    /// Changes the size of a command's terminal.
    pub fn resize(&mut self, job: JobId, size: TerminalSize) {
        self.send(&ToGuest::Resize { job, size });
    }

    /// Loads modules and what they need.
    pub fn load_modules(&mut self, modules: Vec<ModuleRequest>) -> RequestId {
        self.request(|request| ToGuest::LoadModules { request, modules })
    }

    /// Writes a file in the guest.
    pub fn put_file(&mut self, path: &str, mode: u32, contents: Vec<u8>) -> RequestId {
        let request = self.request(|request| ToGuest::PutFile { request, path: path.to_owned(), mode });
        self.puts.push_back(Put { request, contents, position: 0 });
        request
    }

    /// Reads a file of the guest: [`Event::File`], or [`Event::Done`] with the reason why not.
    pub fn get_file(&mut self, path: &str) -> RequestId {
        let request = self.request(|request| ToGuest::GetFile { request, path: path.to_owned() });
        self.gets.insert(request, Vec::new());
        request
    }

    /// Sets the guest's host name.
    pub fn set_hostname(&mut self, name: &str) -> RequestId {
        self.request(|request| ToGuest::SetHostname { request, name: name.to_owned() })
    }

    /// Asks for a sign of life.
    pub fn ping(&mut self) -> RequestId {
        self.request(|request| ToGuest::Ping { request })
    }

    /// Ends the guest.
    pub fn power(&mut self, power: Power) {
        self.send(&ToGuest::Power(power));
    }

    fn next_message(&mut self) -> Result<Option<FromGuest>, SessionError> {
        match self.decoder.next_message() {
            Err(_) if !self.ready => Err(SessionError::Stranger),
            outcome => Ok(outcome?),
        }
    }

    fn handle(&mut self, message: FromGuest) -> Result<(), SessionError> {
        let event = match message {
            FromGuest::Hello(hello) => {
                check(&hello)?;
                self.ready = true;
                Event::Ready { kernel: hello.kernel }
            }
            _ if !self.ready => return Err(SessionError::Stranger),
            FromGuest::Done { request, result } => match (self.gets.remove(&request), result) {
                (Some(contents), Ok(())) => Event::File { request, contents },
                (_, result) => Event::Done { request, result },
            },
            FromGuest::FileData { request, data } => {
                if let Some(contents) = self.gets.get_mut(&request) {
                    contents.extend_from_slice(&data);
                }
                return Ok(());
            }
            FromGuest::SpawnFailed { job, failure } => {
                self.jobs.remove(&job);
                Event::SpawnFailed { job, failure }
            }
            FromGuest::Output { job, channel, data } => Event::Output { job, channel, data },
            FromGuest::StdinCredit { job, bytes } => {
                let Some(input) = self.jobs.get_mut(&job) else {
                    return Ok(());
                };
                input.credit = input.credit.saturating_add(bytes as usize).min(STDIN_WINDOW as usize);
                self.send_stdin(job);
                Event::StdinRoom { job }
            }
            FromGuest::Exited { job, exit } => {
                self.jobs.remove(&job);
                Event::Exited { job, exit }
            }
            FromGuest::Kernel(line) => Event::Kernel(line),
            FromGuest::Bye => Event::Bye,
        };
        self.events.push_back(event);
        Ok(())
    }

    /// Passes on standard input as far as the command's credit goes.
    fn send_stdin(&mut self, job: JobId) {
        let mut messages = Vec::new();
        if let Some(input) = self.jobs.get_mut(&job) {
            while input.credit > 0 && !input.waiting.is_empty() {
                let length = input.waiting.len().min(input.credit).min(CHUNK);
                input.credit -= length;
                messages.push(ToGuest::Stdin { job, data: input.waiting.drain(..length).collect() });
            }
            if input.closing && input.waiting.is_empty() && !input.closed {
                input.closed = true;
                messages.push(ToGuest::CloseStdin { job });
            }
        }
        messages.iter().for_each(|message| self.send(message));
    }

    /// Turns files on their way into messages, but no more of them than the port can use soon.
    fn fill(&mut self) {
        while self.outgoing.len() - self.sent < CHUNK
            && let Some(put) = self.puts.front_mut()
        {
            let rest = &put.contents[put.position..];
            let data = rest[..rest.len().min(CHUNK)].to_vec();
            let request = put.request;
            put.position += data.len();
            if data.is_empty() {
                self.puts.pop_front();
                self.send(&ToGuest::PutEnd { request });
            } else {
                self.send(&ToGuest::PutData { request, data });
            }
        }
    }

    fn request(&mut self, message: impl FnOnce(RequestId) -> ToGuest) -> RequestId {
        let request = RequestId(self.id());
        self.send(&message(request));
        request
    }

    fn send(&mut self, message: &ToGuest) {
        // A command line beyond the frame's limit is beyond the kernel's own limit for one as well.
        if let Err(error) = frame::encode(message, &mut self.outgoing) {
            self.refuse(message, error);
        }
    }

    /// Answers in the agent's place for a message that cannot be sent.
    fn refuse(&mut self, message: &ToGuest, error: FrameError) {
        let failure = Failure { message: error.to_string(), errno: None };
        match message {
            ToGuest::Spawn { job, .. } => {
                self.jobs.remove(job);
                self.events.push_back(Event::SpawnFailed { job: *job, failure });
            }
            ToGuest::LoadModules { request, .. }
            | ToGuest::PutFile { request, .. }
            | ToGuest::GetFile { request, .. }
            | ToGuest::SetHostname { request, .. } => {
                self.events.push_back(Event::Done { request: *request, result: Err(failure) });
            }
            // All others are small.
            _ => {}
        }
    }

    fn id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }
}

fn check(hello: &Hello) -> Result<(), SessionError> {
    match hello {
        Hello { magic: MAGIC, version: VERSION, .. } => Ok(()),
        Hello { magic: MAGIC, version, .. } => Err(SessionError::Version(*version)),
        _ => Err(SessionError::Stranger),
    }
}

/// How many bytes that have been sent may stay in the buffer: moving the rest up for every few bytes would cost
/// more than the memory.
const SENT_KEPT: usize = 4 * CHUNK;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The agent's end of the stream.
    #[derive(Default)]
    struct Guest(Decoder);

    impl Guest {
        fn say(&self, session: &mut Session, message: &FromGuest) -> Result<(), SessionError> {
            let mut bytes = Vec::new();
            frame::encode(message, &mut bytes).unwrap();
            session.receive(&bytes)
        }

        fn greet(&self, session: &mut Session) {
            let hello = Hello { magic: MAGIC, version: VERSION, kernel: "6.12".to_owned() };
            self.say(session, &FromGuest::Hello(hello)).unwrap();
            assert_eq!(session.next_event(), Some(Event::Ready { kernel: "6.12".to_owned() }));
        }

        /// Takes all that the session wants to send.
        fn hear(&mut self, session: &mut Session) -> Vec<ToGuest> {
            let mut messages = Vec::new();
            loop {
                let bytes = session.outgoing().to_vec();
                if bytes.is_empty() {
                    return messages;
                }
                session.sent(bytes.len());
                self.0.feed(&bytes);
                while let Some(message) = self.0.next_message().unwrap() {
                    messages.push(message);
                }
            }
        }
    }

    #[test]
    fn a_stranger_and_an_old_agent_are_told_apart() {
        let guest = Guest::default();
        let mut hello = Hello { magic: MAGIC, version: VERSION + 1, kernel: String::new() };
        let mut session = Session::new();
        let old = guest.say(&mut session, &FromGuest::Hello(hello.clone()));
        assert_eq!(old, Err(SessionError::Version(VERSION + 1)));
        hello.magic = 0;
        let mut session = Session::new();
        assert_eq!(guest.say(&mut session, &FromGuest::Hello(hello)), Err(SessionError::Stranger));
        let mut session = Session::new();
        assert_eq!(guest.say(&mut session, &FromGuest::Bye), Err(SessionError::Stranger));
        assert_eq!(Session::new().receive(b"login: \xff\xff\xff\xff"), Err(SessionError::Stranger));
    }

    #[test]
    fn standard_input_waits_for_credit() {
        let mut guest = Guest::default();
        let mut session = Session::new();
        guest.greet(&mut session);
        let command = Command { argv: vec!["cat".to_owned()], stdin: true, ..Command::default() };
        let job = session.spawn(command);
        let data = vec![7; STDIN_WINDOW as usize + 10];
        session.write_stdin(job, &data);
        session.close_stdin(job);
        let bytes = |messages: &[ToGuest]| -> usize {
            messages
                .iter()
                .map(|message| if let ToGuest::Stdin { data, .. } = message { data.len() } else { 0 })
                .sum()
        };
        let first = guest.hear(&mut session);
        assert_eq!(bytes(&first), STDIN_WINDOW as usize);
        assert!(!first.iter().any(|message| matches!(message, ToGuest::CloseStdin { .. })));
        assert_eq!(session.stdin_room(job), 0);
        guest.say(&mut session, &FromGuest::StdinCredit { job, bytes: 100 }).unwrap();
        assert_eq!(session.next_event(), Some(Event::StdinRoom { job }));
        let second = guest.hear(&mut session);
        assert_eq!(bytes(&second), 10);
        assert_eq!(second.last(), Some(&ToGuest::CloseStdin { job }));
        assert_eq!(session.stdin_room(job), 90);
    }

    #[test]
    fn a_file_from_the_guest_is_put_together() {
        let guest = Guest::default();
        let mut session = Session::new();
        guest.greet(&mut session);
        let request = session.get_file("/etc/hosts");
        let failed = session.get_file("/nonexistent");
        for data in [b"one ".to_vec(), b"two".to_vec()] {
            guest.say(&mut session, &FromGuest::FileData { request, data }).unwrap();
        }
        guest.say(&mut session, &FromGuest::Done { request, result: Ok(()) }).unwrap();
        assert_eq!(session.next_event(), Some(Event::File { request, contents: b"one two".to_vec() }));
        let failure = Failure { message: "no".to_owned(), errno: Some(2) };
        guest.say(&mut session, &FromGuest::Done { request: failed, result: Err(failure.clone()) }).unwrap();
        assert_eq!(session.next_event(), Some(Event::Done { request: failed, result: Err(failure) }));
    }

    #[test]
    fn a_command_too_long_for_a_frame_fails_like_one_that_cannot_start() {
        let mut session = Session::new();
        let job = session.spawn(Command { argv: vec!["x".repeat(frame::MAX_BODY)], ..Command::default() });
        assert!(
            matches!(session.next_event(), Some(Event::SpawnFailed { job: failed, .. }) if failed == job)
        );
    }

    proptest! {
        #[test]
        fn a_file_arrives_whole_and_in_order(length in 0usize..200_000, takes in proptest::collection::vec(1usize..70_000, 1..8)) {
            let contents: Vec<u8> = (0..length).map(|index| (index * 31 / 7) as u8).collect();
            let mut session = Session::new();
            session.put_file("/file", 0o644, contents.clone());
            let mut decoder = Decoder::default();
            let mut arrived = Vec::new();
            let mut ended = false;
            for take in takes.iter().cycle() {
                let piece = session.outgoing();
                if piece.is_empty() {
                    break;
                }
                let piece = piece[..piece.len().min(*take)].to_vec();
                session.sent(piece.len());
                decoder.feed(&piece);
                while let Some(message) = decoder.next_message().unwrap() {
                    match message {
                        ToGuest::PutData { data, .. } => arrived.extend(data),
                        ToGuest::PutEnd { .. } => ended = true,
                        _ => {}
                    }
                }
            }
            prop_assert!(ended);
            prop_assert_eq!(arrived, contents);
        }

        #[test]
        fn garbage_after_the_greeting_is_an_error_or_events(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
            let mut session = Session::new();
            Guest::default().greet(&mut session);
            let _ = session.receive(&bytes);
            while session.next_event().is_some() {}
        }
    }
}
