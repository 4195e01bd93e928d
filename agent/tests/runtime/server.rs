//! A container runtime that holds images and nothing else, says that layers lie elsewhere, and can be ended and started again.

use std::fs;
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use brink_cri::call::{Call as _, Message as _};
use brink_cri::generated as cri;
use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, Request, Response};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;

/// gRPC's number for a call that nobody knows.
const UNIMPLEMENTED: u32 = 12;
/// Where it says that images lie.
pub(crate) const IMAGES: &str = "/images";
/// Where it says that writable layers lie: apart, which containerd cannot do.
pub(crate) const LAYERS: &str = "/layers";
/// A byte for compression and four for the length come before each message.
const HEAD: usize = 5;

/// What it holds, which outlives it.
pub(crate) struct Held(Mutex<Vec<String>>);

impl Held {
    pub(crate) fn new(images: &[&str]) -> Arc<Self> {
        let images = images.iter().map(|&name| name.to_owned());
        Arc::new(Self(Mutex::new(images.collect())))
    }

    /// The images that are still there.
    pub(crate) fn images(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// The answer to a call; none for one that it does not know.
    fn answer(&self, path: &str, message: &[u8]) -> Option<Vec<u8>> {
        Some(match path {
            cri::VersionRequest::PATH => cri::VersionResponse {
                version: "0.1.0".to_owned(),
                runtime_name: "fake".to_owned(),
                runtime_version: "7".to_owned(),
                runtime_api_version: "v1".to_owned(),
            }
            .encode_to_vec(),
            cri::ListImagesRequest::PATH => {
                let image = |id: String| cri::Image {
                    id,
                    size: 7,
                    ..cri::Image::default()
                };
                let images = self.images().into_iter().map(image).collect();
                cri::ListImagesResponse { images }.encode_to_vec()
            }
            cri::RemoveImageRequest::PATH => {
                let asked = cri::RemoveImageRequest::decode(message).unwrap();
                let id = asked.image.unwrap_or_default().image;
                self.0.lock().unwrap().retain(|held| *held != id);
                Vec::new()
            }
            cri::ImageFsInfoRequest::PATH => {
                let on = |folder: &str| cri::FilesystemUsage {
                    fs_id: Some(cri::FilesystemIdentifier {
                        mountpoint: folder.to_owned(),
                    }),
                    ..cri::FilesystemUsage::default()
                };
                cri::ImageFsInfoResponse {
                    image_filesystems: vec![on(IMAGES)],
                    container_filesystems: vec![on(LAYERS)],
                }
                .encode_to_vec()
            }
            // Without a field that is set, a message has no bytes.
            cri::StatusRequest::PATH
            | cri::ListPodSandboxRequest::PATH
            | cri::ListContainersRequest::PATH => Vec::new(),
            _ => return None,
        })
    }
}

/// One run of the runtime; it ends with this.
pub(crate) struct Server {
    end: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at a socket, where another one may have been before. Who is asked at `dies_at` ends and does not answer.
    pub(crate) fn start(socket: &Path, held: &Arc<Held>, dies_at: Option<&'static str>) -> Self {
        // What one leaves that was killed is in the way.
        let _nobody_was_here = fs::remove_file(socket);
        let listener = StdListener::bind(socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let end = Arc::new(Notify::new());
        let serving = Arc::new(Serving {
            held: Arc::clone(held),
            end: Arc::clone(&end),
            dies_at,
        });
        let thread = thread::spawn(move || serve(&serving, listener));
        Self {
            end,
            thread: Some(thread),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.notify_one();
        if let Some(thread) = self.thread.take() {
            // What it stopped at has been printed.
            let _ended = thread.join();
        }
    }
}

/// What a connection is served by.
struct Serving {
    held: Arc<Held>,
    end: Arc<Notify>,
    dies_at: Option<&'static str>,
}

/// Serves until it is to end; the connections end with their tokio.
fn serve(serving: &Arc<Serving>, listener: StdListener) {
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio.block_on(async {
        let listener = UnixListener::from_std(listener).unwrap();
        let accepting = async {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(serving).connection(stream));
            }
        };
        tokio::select! {
            () = accepting => {}
            () = serving.end.notified() => {}
        }
    });
}

impl Serving {
    async fn connection(self: Arc<Self>, stream: UnixStream) {
        let Ok(mut connection) = h2::server::handshake(stream).await else {
            return;
        };
        while let Some(Ok((request, respond))) = connection.accept().await {
            tokio::spawn(Arc::clone(&self).call(request, respond));
        }
    }

    async fn call(self: Arc<Self>, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        let path = request.uri().path().to_owned();
        let message = body_of(request.into_body()).await;
        if self.dies_at == Some(path.as_str()) {
            self.end.notify_one();
            return std::future::pending().await;
        }
        reply(respond, self.held.answer(&path, &message[HEAD..]));
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

fn reply(mut respond: SendResponse<Bytes>, answer: Option<Vec<u8>>) {
    let (framed, code) = match answer {
        Some(message) => {
            let length = u32::try_from(message.len()).unwrap().to_be_bytes();
            ([&[0], &length[..], &message].concat(), 0)
        }
        None => (Vec::new(), UNIMPLEMENTED),
    };
    let mut head = Response::new(());
    let kind = "application/grpc".parse().unwrap();
    head.headers_mut().insert("content-type", kind);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", code.into());
    let mut stream = respond.send_response(head, false).unwrap();
    stream.send_data(framed.into(), false).unwrap();
    stream.send_trailers(trailers).unwrap();
}
