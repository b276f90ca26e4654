//! A worker whose jobs are not processes but a function. Beside `fermata dev`:
//!
//! ```sh
//! cargo run -p fermata-client --example worker &
//! fermata job submit --target example --params '{"seconds": 2}' --wait end
//! ```
//!
//! Ctrl-C drains it: it finishes what it has in hand.

use std::error::Error;
use std::time::Duration;

use fermata_client::Client;
use fermata_client::api::servers::ServerBody;
use fermata_client::worker::{Ending, Run, WorkerOptions};
use serde::Deserialize;

/// What a job of this worker is told.
#[derive(Debug, Deserialize)]
struct Work {
    seconds: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("FERMATA_URL").unwrap_or_else(|_| "http://127.0.0.1:7400".to_owned());
    let client = Client::connect(url.split(','))?;
    let server = ServerBody {
        groups: Vec::new(),
        max_jobs: Some(4),
        enabled: true,
    };
    client.register_server("example", &server).await?;
    println!("working; Ctrl-C drains");
    let ctrl_c = async {
        // Without a way to be told it works until it is killed.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    client
        .worker(WorkerOptions::new("example"), handle, ctrl_c)
        .await?;
    Ok(())
}

/// Executes one attempt, which was confirmed: it runs now, and nowhere else.
async fn handle(mut run: Run) -> Ending {
    let params = run.offer.params.as_ref();
    let work = params.map(|params| serde_json::from_str::<Work>(params.as_json()));
    let Some(Ok(work)) = work else {
        return ended(2, "the parameters are not {\"seconds\": NUMBER}");
    };
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(work.seconds)) => ended(0, "slept well"),
        // Cancelled, too old, or about to be another's. Whoever does not listen is dropped at the
        // end of the lease.
        stop = run.stop.requested() => ended(1, &format!("stopped: {stop:?}")),
    }
}

fn ended(code: i32, description: &str) -> Ending {
    Ending {
        code,
        description: Some(description.to_owned()),
    }
}
