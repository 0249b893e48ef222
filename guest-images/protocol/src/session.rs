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
mod tests;
