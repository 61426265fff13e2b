//! `kubectl hone ui`, which `hone ui` calls: serves the page.

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;

use crate::ConsoleError;
use crate::cluster::Cluster;
use crate::page::server;
use crate::reports::{Folder, Reports};

/// Arguments of `ui`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where the page is served. The page asks nobody who they are: on another address than loopback, everybody who
    /// reaches it sees what this program may see.
    #[arg(long, env = "HONE_UI_LISTEN", default_value = "127.0.0.1:8090")]
    listen: SocketAddr,
    /// A folder that reports are shown from, such as s3://artifacts/; several may be given, none are shown without.
    /// The store's credentials come from the environment.
    #[arg(long, env = "HONE_UI_REPORTS", value_delimiter = ',')]
    reports: Vec<Folder>,
    /// Another name than localhost under which a page on loopback is asked for.
    #[arg(long = "host", env = "HONE_UI_HOSTS", value_delimiter = ',')]
    hosts: Vec<String>,
}

pub async fn run(
    cluster: &Cluster,
    namespace: Option<String>,
    arguments: &Arguments,
) -> Result<(), ConsoleError> {
    let filter = EnvFilter::try_from_env("HONE_LOG").unwrap_or_else(|_| EnvFilter::new("error"));
    let _ =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
    let what = format!("listening on {}: choose a free address with --listen", arguments.listen);
    let listener = TcpListener::bind(arguments.listen).await.map_err(ConsoleError::io(what))?;
    let address = listener.local_addr().map_err(ConsoleError::io("reading the address"))?;
    println!("http://{address}");
    let reports = Reports { folders: Some(arguments.reports.clone()), ..Reports::default() };
    server::serve(cluster.clone(), namespace, reports, arguments.hosts.clone(), listener).await
}
