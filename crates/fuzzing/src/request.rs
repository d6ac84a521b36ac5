//! Any bytes as a request of either API are read, or refused with a JSON body, without a panic; and a request
//! that was read can be answered.

use prompt::reply::{Api, Reply, Stamp};
use prompt::request::Usage;
use prompt::{Delta, Ending};

/// Panics if the property does not hold.
pub fn check(body: &[u8]) {
    for (api, read) in [
        (Api::Responses, prompt::responses::read(body, &[])),
        (Api::Chat, prompt::chat::read(body)),
    ] {
        let answer = match read {
            Err(refusal) => refusal.to_body(),
            Ok(request) => {
                let stamp =
                    Stamp { id: "x".to_owned(), created_at: 0, model: request.model.clone() };
                let (mut reply, mut out) = (Reply::new(api, &request, stamp), Vec::new());
                for (tool, index) in request.tools.iter().zip(0..) {
                    reply.push(Delta::Call { index, name: &tool.name }, &mut out);
                    reply.push(Delta::CallEnd { index, complete: true }, &mut out);
                }
                reply.finish(Ending::Stop, Usage::default(), &mut out);
                reply.into_body()
            }
        };
        serde_json::from_slice::<serde_json::Value>(&answer).expect("it is JSON");
    }
}
