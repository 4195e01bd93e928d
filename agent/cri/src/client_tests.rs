//! The client against sockets of every kind: nobody there, nobody answering, other versions, other protocols, and one that goes away.

use std::collections::HashMap;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::Arc;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, Response};
use prost::Message as _;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

use super::*;

const SHORT: Patience = Patience {
    connect: Duration::from_millis(200),
    ask: Duration::from_millis(200),
    remove: Duration::from_millis(400),
};
/// gRPC's number for a call that nobody knows.
const UNIMPLEMENTED: u32 = 12;

/// How a call is answered.
enum Says {
    Message(Vec<u8>),
    /// gRPC's number, and words.
    Status(u32, &'static str),
    /// Never.
    Nothing,
}

type Answers = dyn Fn(&str, &[u8]) -> Says + Send + Sync;

/// A runtime out of a function of the path and the message.
struct Server {
    socket: PathBuf,
    task: JoinHandle<()>,
    _folder: TempDir,
}

impl Server {
    fn new(answers: impl Fn(&str, &[u8]) -> Says + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("cri.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let answers: Arc<Answers> = Arc::new(answers);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&answers)));
            }
        });
        Self {
            socket,
            task,
            _folder: folder,
        }
    }

    async fn connect(&self) -> Result<Client, CriError> {
        Client::connect(&self.socket, SHORT).await
    }
}

async fn serve(stream: UnixStream, answers: Arc<Answers>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else {
        return;
    };
    let mut calls = JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        let answers = Arc::clone(&answers);
        calls.spawn(async move {
            let path = request.uri().path().to_owned();
            let body = body_of(request.into_body()).await;
            // A byte for compression and four for the length come before the message.
            reply(respond, answers(&path, &body[5..])).await;
        });
    }
}

async fn body_of(mut stream: RecvStream) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(Ok(part)) = stream.data().await {
        stream.flow_control().release_capacity(part.len()).unwrap();
        body.extend_from_slice(&part);
    }
    body
}

async fn reply(mut respond: SendResponse<Bytes>, says: Says) {
    let (framed, code, words) = match says {
        Says::Message(message) => {
            let length = u32::try_from(message.len()).unwrap().to_be_bytes();
            ([&[0], &length[..], &message].concat(), 0, "")
        }
        Says::Status(code, words) => (Vec::new(), code, words),
        Says::Nothing => std::future::pending().await,
    };
    let mut head = Response::new(());
    let kind = "application/grpc".parse().unwrap();
    head.headers_mut().insert("content-type", kind);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", code.into());
    trailers.insert("grpc-message", words.parse().unwrap());
    let mut stream = respond.send_response(head, false).unwrap();
    stream.send_data(framed.into(), false).unwrap();
    stream.send_trailers(trailers).unwrap();
}

/// What every runtime says of itself.
fn identity(path: &str) -> Option<Says> {
    match path {
        cri::VersionRequest::PATH => Some(Says::Message(version("v1"))),
        cri::StatusRequest::PATH => {
            let config = r#"{"sandboxImage": "localhost/sandbox:1"}"#.to_owned();
            let status = cri::StatusResponse {
                status: None,
                info: HashMap::from([("config".to_owned(), config)]),
            };
            Some(Says::Message(status.encode_to_vec()))
        }
        _ => None,
    }
}

fn version(api: &str) -> Vec<u8> {
    let answer = cri::VersionResponse {
        version: "0.1.0".to_owned(),
        runtime_name: "fake".to_owned(),
        runtime_version: "7".to_owned(),
        runtime_api_version: api.to_owned(),
    };
    answer.encode_to_vec()
}

fn says(message: &impl prost::Message) -> Says {
    Says::Message(message.encode_to_vec())
}

#[track_caller]
fn check_error<T>(answer: Result<T, CriError>, name: &str, part: &str) {
    let Err(error) = answer else {
        panic!("answered, expected {name}");
    };
    assert_eq!(error.name(), name, "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

#[tokio::test]
async fn nobody_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("cri.sock");
    let connected = Client::connect(&socket, SHORT).await;
    check_error(connected, "absent", "cri.sock");
    // It was there, and has died: the socket stays.
    drop(StdListener::bind(&socket).unwrap());
    let connected = Client::connect(&socket, SHORT).await;
    check_error(connected, "absent", "refused");
    let found = connect_first(&[socket.clone(), socket], SHORT).await;
    assert_eq!(found.err().map(|errors| errors.len()), Some(2));
}

#[tokio::test]
async fn a_socket_that_takes_connections_and_never_answers_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("cri.sock");
    let _listener = StdListener::bind(&socket).unwrap();
    let began = std::time::Instant::now();
    let connected = Client::connect(&socket, SHORT).await;
    check_error(connected, "hung", "Version within 200 ms");
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_socket_whose_queue_is_full_hangs_too() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("cri.sock");
    let _listener = StdListener::bind(&socket).unwrap();
    let mut waiting = Vec::new();
    let full = loop {
        match Connection::open(&socket, Duration::from_millis(100)).await {
            Ok(connection) if waiting.len() < 10_000 => waiting.push(connection),
            other => break other,
        }
    };
    check_error(full, "hung", "for a connection");
}

#[tokio::test]
async fn who_answers_is_known_by_name_and_by_what_it_makes_sandboxes_of() {
    let server = Server::new(|path, _| identity(path).unwrap_or(Says::Nothing));
    let client = server.connect().await.unwrap();
    assert_eq!(client.identity().name, "fake");
    assert_eq!(client.sandbox_images, ["localhost/sandbox:1"]);
    assert!(!client.is_closed());
    check_error(client.places().await, "hung", "ImageFsInfo");
}

#[tokio::test]
async fn other_versions_are_named() {
    const UNKNOWN: Says = Says::Status(UNIMPLEMENTED, "unknown service");
    let older = Server::new(|path, _| match path {
        ALPHA => Says::Message(version("v1alpha2")),
        _ => UNKNOWN,
    });
    check_error(
        older.connect().await,
        "noCriV1",
        "fake 7 speaks v1alpha2 alone",
    );
    let other = Server::new(|_, _| UNKNOWN);
    check_error(other.connect().await, "noCriV1", "nothing of CRI");
}

#[tokio::test]
async fn another_protocol_is_told_from_a_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("docker.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let served = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // It answers what it takes for a request.
            let mut request = [0; 24];
            stream.read_exact(&mut request).await.unwrap();
            let page = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
            stream.write_all(page).await.unwrap();
        }
    });
    let connected = Client::connect(&socket, SHORT).await;
    check_error(connected, "noCriV1", "is no gRPC");
    served.abort();
}

#[tokio::test]
async fn a_runtime_that_goes_away_is_gone_and_not_refusing() {
    let server = Server::new(|path, _| identity(path).unwrap_or(Says::Nothing));
    let client = server.connect().await.unwrap();
    let asking = client.read();
    let ending = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.task.abort();
    };
    let (answer, ()) = tokio::join!(asking, ending);
    check_error(answer, "gone", "ListImages");
    // The connection knows a moment later.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(client.is_closed());
    check_error(client.read().await, "gone", "ListImages");
    let socket = server.socket.clone();
    check_error(Client::connect(&socket, SHORT).await, "absent", "refused");
}

#[tokio::test]
async fn a_refusal_has_the_runtimes_words_and_what_is_gone_is_removed() {
    let server = Server::new(|path, message| {
        identity(path).unwrap_or_else(|| match path {
            cri::RemoveContainerRequest::PATH => {
                let request = cri::RemoveContainerRequest::decode(message).unwrap();
                match request.container_id.as_str() {
                    "gone" => Says::Status(5, "not found"),
                    "slow" => Says::Status(4, "context deadline exceeded"),
                    _ => Says::Status(2, "device or resource busy"),
                }
            }
            _ => Says::Status(UNIMPLEMENTED, "no"),
        })
    });
    let client = server.connect().await.unwrap();
    client.remove_container("gone").await.unwrap();
    let busy = client.remove_container("busy").await;
    check_error(busy, "refused", "device or resource busy (Unknown)");
    check_error(client.remove_container("slow").await, "hung", "400 ms");
    check_error(client.places().await, "refused", "ImageFsInfo");
    assert!(!client.is_closed());
}

#[tokio::test]
async fn what_a_runtime_holds_is_read_with_what_is_mounted_in_the_living() {
    let server = Server::new(|path, message| {
        identity(path).unwrap_or_else(|| match path {
            cri::ListImagesRequest::PATH => says(&cri::ListImagesResponse {
                images: vec![cri::Image {
                    id: "sha256:aa".to_owned(),
                    size: 7,
                    pinned: true,
                    ..cri::Image::default()
                }],
            }),
            cri::ListPodSandboxRequest::PATH => says(&cri::ListPodSandboxResponse::default()),
            cri::ListContainersRequest::PATH => says(&cri::ListContainersResponse {
                containers: ["alive", "dead", "going"].map(in_list).to_vec(),
            }),
            cri::ContainerStatusRequest::PATH => {
                let asked = cri::ContainerStatusRequest::decode(message).unwrap();
                match asked.container_id.as_str() {
                    "alive" => says(&with_a_mount()),
                    "going" => Says::Status(5, "not found"),
                    other => panic!("{other} was asked for"),
                }
            }
            cri::ListContainerStatsRequest::PATH => says(&cri::ListContainerStatsResponse {
                stats: vec![
                    figures("dead", Some(9)),
                    figures("alive", None),
                    figures("going", Some(5)),
                    figures("new", Some(0)),
                ],
            }),
            _ => Says::Status(UNIMPLEMENTED, "no"),
        })
    });
    let client = server.connect().await.unwrap();
    let state = client.read().await.unwrap();
    assert!(state.images[0].is_pinned && state.images[0].bytes == 7);
    assert_eq!(state.sandbox_images, ["localhost/sandbox:1"]);
    let uses = |at: usize| {
        state.containers[at]
            .images
            .iter()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(uses(0), ["models:1", "sha256:aa"]);
    assert_eq!(uses(1), ["sha256:aa"]);
    let bytes = |layers: Layers| -> Vec<(String, u64)> {
        let layers = layers.into_iter();
        layers.map(|(id, written)| (id, written.bytes)).collect()
    };
    let expected = |dead: u64| [("dead".to_owned(), dead), ("going".to_owned(), 5)];
    assert_eq!(bytes(client.layers().await.unwrap()), expected(9));
    let living = client.layers_of_the_living().await.unwrap();
    assert_eq!(bytes(living), expected(0), "who has ended holds nothing");
}

fn in_list(id: &str) -> cri::Container {
    let state = if id == "dead" {
        cri::ContainerState::ContainerExited
    } else {
        cri::ContainerState::ContainerRunning
    };
    cri::Container {
        id: id.to_owned(),
        image_ref: "sha256:aa".to_owned(),
        state: state.into(),
        ..cri::Container::default()
    }
}

fn with_a_mount() -> cri::ContainerStatusResponse {
    let mount = cri::Mount {
        container_path: "/models".to_owned(),
        image: Some(cri::ImageSpec {
            image: "models:1".to_owned(),
            ..cri::ImageSpec::default()
        }),
    };
    cri::ContainerStatusResponse {
        status: Some(cri::ContainerStatus {
            mounts: vec![mount],
            ..cri::ContainerStatus::default()
        }),
    }
}

fn figures(id: &str, bytes: Option<u64>) -> cri::ContainerStats {
    let layer = cri::FilesystemUsage {
        used_bytes: bytes.map(|value| cri::UInt64Value { value }),
        ..cri::FilesystemUsage::default()
    };
    cri::ContainerStats {
        attributes: Some(cri::ContainerAttributes { id: id.to_owned() }),
        writable_layer: Some(layer),
    }
}

#[test]
fn what_sandboxes_are_made_of_is_read_from_each_runtimes_configuration() {
    let check = |text: &str, expected: &[&str]| assert_eq!(named(text), expected, "{text}");
    check(r#"{"sandboxImage": "a:1"}"#, &["a:1"]);
    check(r#"{"pinnedImages": {"sandbox": "b:1"}}"#, &["b:1"]);
    check(r#"{"sandboxImage": ""}"#, &[]);
    check("[crio]\npause_image = 7\n", &[]);
}
