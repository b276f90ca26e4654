//! Launches a job and waits for its end. Beside `fermata dev`:
//!
//! ```sh
//! cargo run -p fermata-client --example launch -- '{"hello": "world"}'
//! ```

use std::error::Error;
use std::time::Duration;

use fermata_client::api::jobs::Wait;
use fermata_client::api::params::Params;
use fermata_client::{Client, LaunchRequest};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("FERMATA_URL").unwrap_or_else(|_| "http://127.0.0.1:7400".to_owned());
    let params = std::env::args().nth(1).unwrap_or_else(|| "{}".to_owned());
    let client = Client::connect(url.split(','))?;

    // Without an event the job is a pool of its own. With an `id` of one's own the launch could be
    // repeated after a crash of this program, too; within this call the client sees to it.
    let launch = LaunchRequest {
        params: Some(Params::from_json(&params)?),
        ..LaunchRequest::default()
    };
    let job = client.launch(launch).await?;
    println!("{} is {:?}", job.id, job.state);

    let job = client
        .job_and_wait(&job.id, Wait::End, Duration::from_secs(60))
        .await?;
    println!("{} is {:?}, code {:?}", job.id, job.state, job.code);
    println!("{}", job.description.unwrap_or_default());
    Ok(())
}
