//! Does something under a limit: at most two at once, ten a minute, whoever asks for it and where.
//! Beside `fermata dev`, several times at once:
//!
//! ```sh
//! cargo run -p fermata-client --example permit
//! ```

use std::error::Error;
use std::time::Duration;

use fermata_client::api::limits::Limit;
use fermata_client::{Client, LaunchRequest, PermitError, PermitOptions};

const LIMITS: &str = r#"[
    {"type": "job", "amount": 2, "rate": 10, "window": 60, "cap_key": "example"},
    {"type": "queue", "amount": 100}
]"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("FERMATA_URL").unwrap_or_else(|_| "http://127.0.0.1:7400".to_owned());
    let client = Client::connect(url.split(','))?;
    let limits: Vec<Limit> = serde_json::from_str(LIMITS)?;
    let launch = LaunchRequest {
        limits,
        ..LaunchRequest::default()
    };
    let options = PermitOptions {
        wait: Some(Duration::from_secs(120)),
        ..PermitOptions::default()
    };

    let mut permit = match client.permit_with(launch, options).await {
        Ok(permit) => permit,
        Err(error @ (PermitError::NotPermitted(_) | PermitError::TimedOut { .. })) => {
            println!("not now: {error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    println!("permitted, as job {}", permit.job().id);
    tokio::select! {
        () = call_the_vendor() => {
            permit.complete(0).await?;
            println!("done");
        }
        // The slot may soon be another's: what was begun is dropped. So is the permit, after this.
        stop = permit.must_stop() => println!("stopped in time: {stop:?}"),
    }
    Ok(())
}

/// What may not be done too often.
async fn call_the_vendor() {
    tokio::time::sleep(Duration::from_secs(3)).await;
}
