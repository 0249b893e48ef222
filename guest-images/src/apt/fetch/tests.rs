//! Against a small server that cuts connections as it is told to.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;

use tempfile::TempDir;

use super::*;

/// What the server does with one request.
#[derive(Clone, Copy)]
enum Answer {
    /// So many bytes of the body, and then the connection is cut.
    Cut(usize),
    /// All that was asked for.
    Whole,
    /// The whole file whatever was asked for.
    IgnoreRange,
    /// The right number of other bytes.
    Other,
    /// An error.
    Status(u16),
}

struct Server {
    address: String,
    /// The `Range` of each request.
    ranges: Arc<Mutex<Vec<Option<String>>>>,
}

impl Server {
    /// Serves `contents`, each request as the next of `answers` says, and all later ones as the last.
    fn new(contents: Vec<u8>, answers: Vec<Answer>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/pool/linux-image.deb", listener.local_addr().unwrap());
        let ranges = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&ranges);
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let range = read_range(&stream);
                seen.lock().unwrap().push(range.clone());
                answer(&mut stream, &contents, answers[number.min(answers.len() - 1)], range);
            }
        });
        Server { address, ranges }
    }

    fn ranges(&self) -> Vec<Option<String>> {
        self.ranges.lock().unwrap().clone()
    }
}

fn read_range(stream: &TcpStream) -> Option<String> {
    let lines = BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let headers: Vec<String> = lines.map(|line| line.to_ascii_lowercase()).collect();
    headers.iter().find_map(|line| line.strip_prefix("range: ").map(str::to_owned))
}

fn answer(stream: &mut TcpStream, contents: &[u8], answer: Answer, range: Option<String>) {
    let from: usize = range
        .map_or(0, |range| range.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap().parse().unwrap());
    let all = contents.len();
    let (status, body) = match answer {
        Answer::IgnoreRange => ("200 OK".to_owned(), contents.to_vec()),
        Answer::Other => ("200 OK".to_owned(), vec![0; all]),
        Answer::Status(status) => (format!("{status} Not today"), Vec::new()),
        _ if from >= all => ("416 Range Not Satisfiable".to_owned(), Vec::new()),
        _ if from > 0 => (
            format!("206 Partial Content\r\nContent-Range: bytes {from}-{}/{all}", all - 1),
            contents[from..].to_vec(),
        ),
        _ => ("200 OK".to_owned(), contents.to_vec()),
    };
    let sent = match answer {
        Answer::Cut(length) => length.min(body.len()),
        _ => body.len(),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body[..sent]).unwrap();
}

fn contents() -> Vec<u8> {
    (0..200_000u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn remote(server: &Server) -> Remote {
    let contents = contents();
    Remote {
        address: server.address.clone(),
        name: "linux-image_1_amd64.deb".into(),
        size: contents.len() as u64,
        sha256: cache::sha256(&contents),
    }
}

fn fetcher() -> Fetcher {
    Fetcher { pause: Duration::ZERO, ..Fetcher::new(None, Arc::default()) }
}

fn fetch(server: &Server, directory: &TempDir) -> Result<Vec<u8>, Stop> {
    let path = fetcher().fetch(&remote(server), directory.path(), &mut |_| {})?;
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no part is left");
    Ok(fs::read(path).unwrap())
}

fn partial(directory: &TempDir) -> PathBuf {
    directory.path().join("linux-image_1_amd64.deb.partial")
}

fn from(byte: usize) -> Option<String> {
    Some(format!("bytes={byte}-"))
}

#[test]
fn a_cut_connection_is_continued_where_it_was_cut() {
    let directory = TempDir::new().unwrap();
    let answers = vec![Answer::Cut(30_000), Answer::Cut(50_000), Answer::Cut(1), Answer::Whole];
    let server = Server::new(contents(), answers);
    assert!(fetch(&server, &directory).unwrap() == contents());
    assert_eq!(server.ranges(), [None, from(30_000), from(80_000), from(80_001)]);
}

#[test]
fn what_a_killed_process_left_is_continued() {
    let directory = TempDir::new().unwrap();
    fs::write(partial(&directory), &contents()[..123_456]).unwrap();
    let server = Server::new(contents(), vec![Answer::Whole]);
    let mut told = Vec::new();
    fetcher().fetch(&remote(&server), directory.path(), &mut |arrived| told.push(arrived)).unwrap();
    assert_eq!(server.ranges(), [from(123_456)]);
    assert!(told[0] > 123_456 && told.last() == Some(&200_000), "{told:?}");
    // What is complete is not fetched again.
    assert!(fetch(&server, &directory).unwrap() == contents());
    assert_eq!(server.ranges().len(), 1);
}

#[test]
fn a_server_without_ranges_starts_from_the_beginning() {
    let directory = TempDir::new().unwrap();
    fs::write(partial(&directory), &contents()[..70_000]).unwrap();
    let server = Server::new(contents(), vec![Answer::IgnoreRange]);
    assert!(fetch(&server, &directory).unwrap() == contents());
}

#[test]
fn a_part_that_is_wrong_is_thrown_away() {
    for wrong in [vec![1; 100_000], vec![1; 200_000], vec![1; 300_000]] {
        let directory = TempDir::new().unwrap();
        fs::write(partial(&directory), wrong).unwrap();
        let server = Server::new(contents(), vec![Answer::Whole]);
        assert!(fetch(&server, &directory).unwrap() == contents());
        assert_eq!(server.ranges().last(), Some(&None));
    }
}

#[test]
fn a_file_that_is_not_what_the_lists_describe_is_refused() {
    let directory = TempDir::new().unwrap();
    let server = Server::new(contents(), vec![Answer::Other]);
    let stop = fetch(&server, &directory).unwrap_err();
    assert!(
        matches!(&stop, Stop::Unreachable(reason) if reason.contains("signed package lists")),
        "{stop:?}"
    );
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_server_that_does_not_have_it_is_not_asked_again_and_one_that_is_silent_three_times() {
    let directory = TempDir::new().unwrap();
    let server = Server::new(contents(), vec![Answer::Status(404)]);
    assert!(matches!(fetch(&server, &directory), Err(Stop::Unreachable(reason)) if reason.contains("404")));
    assert_eq!(server.ranges().len(), 1);
    let server = Server::new(contents(), vec![Answer::Cut(10), Answer::Cut(0)]);
    assert!(matches!(fetch(&server, &directory), Err(Stop::Unreachable(_))));
    assert_eq!(server.ranges(), [None, from(10), from(10), from(10)]);
    assert_eq!(length(&partial(&directory)), 10, "it is there for the next time");
}

#[test]
fn an_interruption_keeps_what_has_arrived() {
    let directory = TempDir::new().unwrap();
    let server = Server::new(contents(), vec![Answer::Whole]);
    let interrupted = Arc::new(AtomicBool::new(false));
    let fetcher = Fetcher::new(None, Arc::clone(&interrupted));
    let mut stop = |_| interrupted.store(true, Ordering::Relaxed);
    let ended = fetcher.fetch(&remote(&server), directory.path(), &mut stop);
    assert!(matches!(ended, Err(Stop::Interrupted)));
    let kept = length(&partial(&directory));
    assert!(kept > 0 && kept < 200_000, "{kept}");
    assert!(fetch(&server, &directory).unwrap() == contents());
    assert_eq!(server.ranges(), [None, from(usize::try_from(kept).unwrap())]);
}
