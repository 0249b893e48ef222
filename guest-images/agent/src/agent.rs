//! The loop: what is polled, and what each message does.

use std::{collections::BTreeMap, io};

use agent_protocol::{
    Channel, Exit, Failure, FromGuest, Hello, JobId, MAGIC, ModuleRequest, Power, RequestId, ToGuest, VERSION,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{WaitOptions, wait};

use crate::{
    boot,
    files::{Incoming, Outgoing},
    job::{Job, Read},
    kmsg::KernelLog,
    modules::Modules,
    port::Port,
    signals::ChildSignal,
};

/// Everything that is going on.
pub(crate) struct Agent {
    port: Port,
    children: ChildSignal,
    kernel_log: Option<KernelLog>,
    modules: Option<Modules>,
    jobs: BTreeMap<JobId, Job>,
    incoming: BTreeMap<RequestId, Incoming>,
    outgoing: BTreeMap<RequestId, Outgoing>,
    greeted: bool,
    /// The port has no other end at the moment.
    unconnected: bool,
    ending: Option<Power>,
}

/// Something that `poll` watches.
#[derive(Clone, Copy)]
enum Source {
    Port,
    Children,
    KernelLog,
    Output(JobId, Channel),
    Input(JobId),
}

impl Agent {
    /// Greets the host.
    pub(crate) fn new(mut port: Port) -> io::Result<Agent> {
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        port.send(&FromGuest::Hello(Hello { magic: MAGIC, version: VERSION, kernel }));
        port.flush()?;
        Ok(Agent {
            port,
            children: ChildSignal::new()?,
            kernel_log: KernelLog::open().ok(),
            modules: None,
            jobs: BTreeMap::new(),
            incoming: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            greeted: false,
            unconnected: false,
            ending: None,
        })
    }

    /// Serves the host until it ends the guest.
    pub(crate) fn run(mut self) -> io::Result<()> {
        loop {
            self.send_files();
            self.report_exits();
            self.port.flush()?;
            if let Some(power) = self.ending
                && !self.port.is_waiting()
            {
                boot::power(power);
                self.ending = None;
            }
            for source in self.wait()? {
                self.serve(source)?;
            }
        }
    }

    /// Sleeps until something can be done.
    fn wait(&mut self) -> io::Result<Vec<Source>> {
        let mut sources = Vec::with_capacity(8);
        let mut fds = Vec::with_capacity(8);
        let mut watch = |source, descriptor, flags| {
            sources.push(source);
            fds.push(PollFd::from_borrowed_fd(descriptor, flags));
        };
        if !self.unconnected {
            let writing = if self.port.is_waiting() { PollFlags::OUT } else { PollFlags::empty() };
            watch(Source::Port, self.port.device(), PollFlags::IN | writing);
        }
        watch(Source::Children, self.children.descriptor(), PollFlags::IN);
        let room = self.port.has_room();
        if let Some(log) = self.kernel_log.as_ref().filter(|_| room) {
            watch(Source::KernelLog, log.device(), PollFlags::IN);
        }
        for (&id, job) in &self.jobs {
            if let Some(input) = job.watched_input() {
                watch(Source::Input(id), input, PollFlags::OUT);
            }
            for channel in [Channel::Stdout, Channel::Stderr] {
                if let Some(output) = job.watched_output(channel).filter(|_| room) {
                    watch(Source::Output(id, channel), output, PollFlags::IN);
                }
            }
        }
        // A port without another end is always "ready" with a hang-up: look at it now and then instead.
        let pause = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let working = !self.outgoing.is_empty() && room;
        let limit = match (working, self.unconnected) {
            (true, _) => Some(Timespec { tv_sec: 0, tv_nsec: 0 }),
            (false, true) => Some(pause),
            (false, false) => None,
        };
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<Source> = sources
            .iter()
            .zip(&fds)
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|(&source, _)| source)
            .collect();
        let hung_up = fds.iter().zip(&sources).any(|(fd, source)| {
            matches!(source, Source::Port)
                && fd.revents().contains(PollFlags::HUP)
                && !fd.revents().contains(PollFlags::IN)
        });
        self.unconnected = hung_up;
        Ok(ready)
    }

    fn serve(&mut self, source: Source) -> io::Result<()> {
        match source {
            Source::Port => {
                if self.port.receive()? {
                    while let Some(message) = self.port.next()? {
                        self.obey(message)?;
                    }
                }
            }
            Source::Children => {
                self.children.clear();
                self.reap();
            }
            Source::KernelLog => self.report_kernel(),
            Source::Output(id, channel) => self.pass_output(id, channel),
            Source::Input(id) => {
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.feed();
                }
                self.give_credit(id);
            }
        }
        Ok(())
    }

    fn obey(&mut self, message: ToGuest) -> io::Result<()> {
        if let ToGuest::Hello(hello) = &message {
            if hello.magic != MAGIC || hello.version != VERSION {
                return Err(io::Error::other(format!(
                    "the host speaks version {} of the protocol, this agent version {VERSION}",
                    hello.version
                )));
            }
            self.greeted = true;
            return Ok(());
        }
        if !self.greeted {
            return Err(io::Error::other("the host sent something before its greeting"));
        }
        match message {
            ToGuest::Hello(_) => {}
            ToGuest::Spawn { job, command } => match Job::start(&command) {
                Ok(started) => {
                    self.jobs.insert(job, started);
                }
                Err(failure) => self.port.send(&FromGuest::SpawnFailed { job, failure }),
            },
            ToGuest::Stdin { job, data } => {
                if let Some(job) = self.jobs.get_mut(&job) {
                    job.give(&data);
                }
                self.give_credit(job);
            }
            ToGuest::CloseStdin { job } => {
                if let Some(job) = self.jobs.get_mut(&job) {
                    job.close_input();
                }
            }
            // Neither has an answer: the command may have ended while the message was on its way.
            ToGuest::Signal { job, signal } => {
                let _ = self.jobs.get(&job).filter(|job| job.exit.is_none()).map(|job| job.signal(signal));
            }
            ToGuest::Resize { job, size } => {
                let _ = self.jobs.get(&job).map(|job| job.resize(size));
            }
            ToGuest::LoadModules { request, modules } => {
                let result = self.load(&modules);
                self.done(request, result);
            }
            ToGuest::PutFile { request, path, mode } => {
                self.incoming.insert(request, Incoming::create(path, mode));
            }
            ToGuest::PutData { request, data } => {
                if let Some(file) = self.incoming.get_mut(&request) {
                    file.write(&data);
                }
            }
            ToGuest::PutEnd { request } => {
                if let Some(file) = self.incoming.remove(&request) {
                    self.done(request, file.finish());
                }
            }
            ToGuest::GetFile { request, path } => match Outgoing::open(path) {
                Ok(file) => {
                    self.outgoing.insert(request, file);
                }
                Err(failure) => self.done(request, Err(failure)),
            },
            ToGuest::SetHostname { request, name } => {
                let result = rustix::system::sethostname(name.as_bytes()).map_err(|error| Failure {
                    message: format!("cannot set the host name {name:?}: {error}"),
                    errno: Some(error.raw_os_error()),
                });
                self.done(request, result);
            }
            ToGuest::Ping { request } => self.done(request, Ok(())),
            ToGuest::Power(power) => {
                self.port.send(&FromGuest::Bye);
                self.ending = Some(power);
            }
        }
        Ok(())
    }

    fn done(&mut self, request: RequestId, result: Result<(), Failure>) {
        self.port.send(&FromGuest::Done { request, result });
    }

    fn load(&mut self, requests: &[ModuleRequest]) -> Result<(), Failure> {
        if self.modules.is_none() {
            self.modules = Some(Modules::open()?);
        }
        let modules = self.modules.iter();
        modules
            .flat_map(|modules| requests.iter().map(move |request| (modules, request)))
            .try_for_each(|(modules, request)| modules.load(&request.name, &request.parameters))
    }

    /// Collects children that have ended: commands, and orphans that init inherited.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let exit = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Exit::Code(code),
                (None, Some(signal)) => Exit::Signal(signal),
                (None, None) => continue,
            };
            if let Some(job) = self.jobs.values_mut().find(|job| job.pid == pid && job.exit.is_none()) {
                job.exit = Some(exit);
            }
        }
    }

    /// Tells the host about commands that have ended, after all that they wrote.
    fn report_exits(&mut self) {
        let ended = self.jobs.iter().filter(|(_, job)| job.exit.is_some() && !job.reported);
        let ended: Vec<JobId> = ended.map(|(&id, _)| id).collect();
        for id in ended {
            if self.drain(id)
                && let Some(job) = self.jobs.get_mut(&id)
                && let Some(exit) = job.exit
            {
                job.reported = true;
                self.port.send(&FromGuest::Exited { job: id, exit });
            }
        }
        self.jobs.retain(|_, job| !job.is_over());
    }

    /// Passes on all that a command has written so far; false if the port has no room for it now.
    fn drain(&mut self, id: JobId) -> bool {
        for channel in [Channel::Stdout, Channel::Stderr] {
            while let Some(job) = self.jobs.get_mut(&id) {
                if !self.port.has_room() {
                    return false;
                }
                let Read::Data(data) = job.read(channel) else {
                    break;
                };
                self.port.send(&FromGuest::Output { job: id, channel, data });
            }
        }
        true
    }

    fn pass_output(&mut self, id: JobId, channel: Channel) {
        if let Some(job) = self.jobs.get_mut(&id)
            && let Read::Data(data) = job.read(channel)
        {
            self.port.send(&FromGuest::Output { job: id, channel, data });
        }
    }

    fn give_credit(&mut self, id: JobId) {
        if let Some(bytes) = self.jobs.get_mut(&id).and_then(Job::credit) {
            self.port.send(&FromGuest::StdinCredit { job: id, bytes });
        }
    }

    fn send_files(&mut self) {
        let requests: Vec<RequestId> = self.outgoing.keys().copied().collect();
        for request in requests {
            let Some(file) = self.outgoing.get_mut(&request).filter(|_| self.port.has_room()) else {
                return;
            };
            match file.read() {
                Ok(data) if data.is_empty() => {
                    self.outgoing.remove(&request);
                    self.done(request, Ok(()));
                }
                Ok(data) => self.port.send(&FromGuest::FileData { request, data }),
                Err(failure) => {
                    self.outgoing.remove(&request);
                    self.done(request, Err(failure));
                }
            }
        }
    }

    fn report_kernel(&mut self) {
        while self.port.has_room()
            && let Some(log) = &mut self.kernel_log
        {
            match log.next() {
                Ok(Some(line)) => self.port.send(&FromGuest::Kernel(line)),
                Ok(None) => return,
                Err(_) => self.kernel_log = None,
            }
        }
    }
}
