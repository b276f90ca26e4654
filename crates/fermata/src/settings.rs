//! A node's settings: flags go before `FERMATA_*`, these before the file, this before defaults.
//!
//! What can be given is one type, [`Given`], for all three places, so that a flag, a variable and
//! a key in the file cannot differ in name or form. What is in force is another, [`Settings`], in
//! which nothing is missing; written as TOML it is a file that gives the same settings again.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::builder::BoolishValueParser;
use fermata_client::Client;
use fermata_server::member::{Start, Timing, Zone};
use serde::{Deserialize, Serialize};

use crate::error::CommandError;
use crate::logging::{LogArgs, LogFormat};

/// Where a node listens for clients unless it is told otherwise.
pub(crate) const LISTEN_DEFAULT: &str = "127.0.0.1:7400";
/// Where a node listens for peers unless it is told otherwise.
pub(crate) const PEER_LISTEN_DEFAULT: &str = "127.0.0.1:7401";

/// What was given in one place.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Given {
    /// This node, from 1; never used again for another disk
    #[arg(long, env = "FERMATA_ID", value_name = "NUMBER")]
    pub(crate) id: Option<u64>,
    /// The folder with its state, which belongs to it alone
    #[arg(long, env = "FERMATA_DATA", value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    /// Where it listens for clients [default: 127.0.0.1:7400]. Port 0: any
    #[arg(long, env = "FERMATA_LISTEN", value_name = "IP:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Where it listens for peers [default: 127.0.0.1:7401]. Port 0: any
    #[arg(long, env = "FERMATA_PEER_LISTEN", value_name = "IP:PORT")]
    pub(crate) peer_listen: Option<SocketAddr>,
    /// How clients and other nodes reach it; else http:// and where it listens
    #[arg(long, env = "FERMATA_ADVERTISE", value_name = "URL")]
    pub(crate) advertise: Option<String>,
    /// How peers reach it; else where it listens for them
    #[arg(long, env = "FERMATA_PEER_ADVERTISE", value_name = "HOST:PORT")]
    pub(crate) peer_advertise: Option<String>,
    /// Found a new cluster, of this node alone; once it is founded, this does nothing
    #[arg(
        long,
        env = "FERMATA_BOOTSTRAP",
        conflicts_with = "join",
        value_parser = BoolishValueParser::new()
    )]
    pub(crate) bootstrap: bool,
    /// Join a cluster through any of its nodes' peer addresses; once it has joined, they only help
    /// to find the others
    #[arg(
        long,
        env = "FERMATA_JOIN",
        value_name = "HOST:PORT,…",
        value_delimiter = ','
    )]
    pub(crate) join: Vec<String>,
    /// The time zone of local rate windows while it leads, by its IANA name; else the system's
    #[arg(long, env = "FERMATA_TIME_ZONE", value_name = "ZONE")]
    pub(crate) time_zone: Option<String>,
    /// How fast a lost leader is replaced, the same on every node; else fast on loopback and
    /// standard elsewhere
    #[arg(long, env = "FERMATA_PROFILE", value_enum)]
    pub(crate) profile: Option<Profile>,
    /// Listen beyond loopback although anybody who reaches the ports may do everything
    #[arg(long, env = "FERMATA_INSECURE", value_parser = BoolishValueParser::new())]
    pub(crate) insecure: bool,
    /// Write the addresses in use to this file, as JSON, once the node serves
    #[arg(long, env = "FERMATA_READY_FILE", value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) log_args: LogArgs,
    /// In the file beside the others; on the command line among those of the log.
    #[arg(skip)]
    pub(crate) log: Option<String>,
    #[arg(skip)]
    pub(crate) log_format: Option<LogFormat>,
}

/// How fast a lost leader is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Profile {
    /// Heartbeats every 50 ms, elections after 200 to 250 ms: for nodes close to each other
    Fast,
    /// Heartbeats every 100 ms, elections after 300 to 400 ms
    Standard,
}

impl Profile {
    /// The same for the replica.
    pub(crate) fn timing(self) -> Timing {
        match self {
            Self::Fast => Timing::Fast,
            Self::Standard => Timing::Normal,
        }
    }
}

/// The settings in force, by the names under which they are given.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Settings {
    pub(crate) id: u64,
    pub(crate) data: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) peer_listen: SocketAddr,
    /// Port 0 stands for the one that will be taken.
    pub(crate) advertise: String,
    /// Port 0 stands for the one that will be taken.
    pub(crate) peer_advertise: String,
    bootstrap: bool,
    join: Vec<String>,
    #[serde(serialize_with = "zone_name")]
    pub(crate) time_zone: Zone,
    pub(crate) profile: Profile,
    insecure: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ready_file: Option<PathBuf>,
    log: String,
    log_format: LogFormat,
}

fn zone_name<S: serde::Serializer>(zone: &Zone, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(zone.name())
}

impl Given {
    /// What a file says.
    pub(crate) fn read(path: &Path) -> Result<Self, CommandError> {
        let text = std::fs::read_to_string(path).map_err(|source| CommandError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        toml::from_str(&text).map_err(|source| CommandError::NotToml {
            path: path.to_owned(),
            source: Box::new(source),
        })
    }

    /// A new cluster of one node, or the one that the folder holds.
    pub(crate) fn alone(data: PathBuf, listen: SocketAddr, peer_listen: SocketAddr) -> Self {
        Self {
            id: Some(1),
            data: Some(data),
            listen: Some(listen),
            peer_listen: Some(peer_listen),
            bootstrap: true,
            ..Self::default()
        }
    }

    /// What is given here, and where nothing is, what is given there.
    pub(crate) fn or(self, other: Self) -> Self {
        // The two say one thing: where the cluster comes from.
        let (bootstrap, join) = if self.bootstrap || !self.join.is_empty() {
            (self.bootstrap, self.join)
        } else {
            (other.bootstrap, other.join)
        };
        Self {
            id: self.id.or(other.id),
            data: self.data.or(other.data),
            listen: self.listen.or(other.listen),
            peer_listen: self.peer_listen.or(other.peer_listen),
            advertise: self.advertise.or(other.advertise),
            peer_advertise: self.peer_advertise.or(other.peer_advertise),
            bootstrap,
            join,
            time_zone: self.time_zone.or(other.time_zone),
            profile: self.profile.or(other.profile),
            insecure: self.insecure || other.insecure,
            ready_file: self.ready_file.or(other.ready_file),
            log: self.log_args.log.or(other.log),
            log_format: self.log_args.log_format.or(other.log_format),
            log_args: LogArgs::default(),
        }
    }

    /// The settings, with defaults where nothing is given.
    pub(crate) fn settings(self) -> Result<Settings, CommandError> {
        let id = self.id.ok_or(CommandError::Missing {
            name: "--id",
            needed: "each node of a cluster has a number of its own, from 1",
        })?;
        let data = self.data.ok_or(CommandError::Missing {
            name: "--data",
            needed: "the folder with the node's state",
        })?;
        let listen = self.listen.unwrap_or(([127, 0, 0, 1], 7400).into());
        let peer_listen = self.peer_listen.unwrap_or(([127, 0, 0, 1], 7401).into());
        let by_distance = if peer_listen.ip().is_loopback() {
            Profile::Fast
        } else {
            Profile::Standard
        };
        let advertised = |given: Option<String>, name, listen: SocketAddr, scheme| match given {
            Some(given) => Ok(given),
            None if listen.ip().is_unspecified() => Err(CommandError::Missing {
                name,
                needed: "listening on every address says of none how the node is reached",
            }),
            None => Ok(format!("{scheme}{listen}")),
        };
        let log = LogArgs {
            log: self.log,
            log_format: self.log_format,
        };
        let settings = Settings {
            id,
            data,
            listen,
            peer_listen,
            advertise: advertised(self.advertise, "--advertise", listen, "http://")?,
            peer_advertise: advertised(self.peer_advertise, "--peer-advertise", peer_listen, "")?,
            bootstrap: self.bootstrap,
            join: self.join,
            time_zone: zone(self.time_zone.as_deref())?,
            profile: self.profile.unwrap_or(by_distance),
            insecure: self.insecure,
            ready_file: self.ready_file,
            log: log.filter(),
            log_format: log.log_format.unwrap_or_default(),
        };
        settings.check()?;
        Ok(settings)
    }
}

impl Settings {
    /// What is logged, and how.
    pub(crate) fn log(&self) -> LogArgs {
        LogArgs {
            log: Some(self.log.clone()),
            log_format: Some(self.log_format),
        }
    }

    /// Where the node's cluster comes from.
    pub(crate) fn start(&self) -> Start {
        if self.bootstrap {
            Start::Bootstrap
        } else if self.join.is_empty() {
            Start::Restart
        } else {
            Start::Join {
                peers: self.join.clone(),
            }
        }
    }

    fn check(&self) -> Result<(), CommandError> {
        let refuse = |name, given: String, allowed: &str| {
            Err(CommandError::Setting {
                name,
                given,
                allowed: allowed.to_owned(),
            })
        };
        if self.id == 0 {
            return refuse("--id", "0".to_owned(), "a number from 1 is allowed");
        }
        if self.bootstrap && !self.join.is_empty() {
            let given = format!("{} with --bootstrap", self.join.join(","));
            let allowed = "a cluster is founded or joined, not both";
            return refuse("--join", given, allowed);
        }
        let places = [
            ("--listen", self.listen),
            ("--peer-listen", self.peer_listen),
        ];
        for (name, address) in places {
            if !address.ip().is_loopback() && !self.insecure {
                let allowed = "there are no keys and no peer authentication, so only loopback is \
                               allowed; --insecure opens the node to anybody who reaches it";
                return refuse(name, address.to_string(), allowed);
            }
        }
        if let Err(error) = Client::connect([&self.advertise]) {
            return refuse("--advertise", self.advertise.clone(), &error.to_string());
        }
        Ok(())
    }
}

fn zone(name: Option<&str>) -> Result<Zone, CommandError> {
    let zone = match name {
        Some(name) => Zone::named(name),
        None => Zone::system(),
    };
    zone.map_err(|error| CommandError::Setting {
        name: "--time-zone",
        given: name.unwrap_or("the system's").to_owned(),
        allowed: error.to_string(),
    })
}
