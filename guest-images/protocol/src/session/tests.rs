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
    assert!(matches!(session.next_event(), Some(Event::SpawnFailed { job: failed, .. }) if failed == job));
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
