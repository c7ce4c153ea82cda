//! Running the service: the order in which its parts start and end.

use crate::catalogue::Catalogue;
use crate::config::Config;
use crate::http::{Discovery, Market, Moved, routes};
use crate::limits::Limiter;
use crate::seed;
use crate::store::Store;
use crate::store::postgres::Postgres;
use crate::store::sqlite::{Opening, Sqlite};
use crossbeam_channel::{RecvTimeoutError, bounded};
use std::io::{self, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use svc_sys::clock::now;
use svc_sys::http::{self, Bound, HostRule, Limits, OriginRule, Policy, Server};
use svc_sys::signals::Signals;

/// Requests under way get this long at the end.
const GRACE: Duration = Duration::from_secs(3);
/// How often writes of other processes are looked for.
const FOLLOW_EVERY: Duration = Duration::from_millis(100);
/// How often instances tell each other how many public requests have passed: as much of that a crash loses.
const SHARE_EVERY: Duration = Duration::from_secs(1);
/// How often passed windows are forgotten.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Opens the configured store; `opening` says whether a file that is not there is made.
///
/// Errors: a sentence.
pub fn open_store(config: &Config, opening: Opening) -> Result<Arc<dyn Store>, String> {
    if let Some(url) = &config.database_url {
        return open_shared(url);
    }
    let store = Sqlite::open(&config.database, opening)
        .map_err(|error| format!("cannot open {}: {error}", config.database.display()))?;
    Ok(Arc::new(store))
}

fn open_shared(url: &str) -> Result<Arc<dyn Store>, String> {
    // Without the URL in the message: it holds a password.
    let store =
        Postgres::open(url).map_err(|error| format!("cannot open the database of DATABASE_URL: {error}"))?;
    Ok(Arc::new(store))
}

/// Serves until a signal says to end.
///
/// Errors: a sentence, before anything was served.
pub fn run(config: &Config) -> Result<(), String> {
    let (stop, stopped) = bounded(1);
    // First, so that a signal during the start ends it, too.
    let signals = Signals::start(move || {
        // A second signal has nothing to add to the first one.
        let _ = stop.try_send(());
    });
    let _signals = signals.map_err(|error| format!("cannot catch signals: {error}"))?;
    // Caught, so that a file at its size limit is a failed write, answered with 503, and not the end.
    let at_limit = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(libc::SIGXFSZ, at_limit)
        .map_err(|error| format!("cannot catch signals: {error}"))?;
    let store = open_store(config, Opening::OrMake)?;
    if config.seeds {
        store.take_in(seed::all()?, now()).map_err(|error| format!("cannot take in the seeds: {error}"))?;
    }
    match store.unbalanced_transactions() {
        Ok(list) if list.is_empty() => {}
        Ok(list) => log::error!("the ledger does not balance in transactions {list:?}"),
        Err(error) => return Err(format!("cannot read the ledger: {error}")),
    }
    let bound = listen(config)?;
    let url = format!("http://{}", bound.address);
    let market = market(config, store, &url)?;
    if !config.keys.any_writer() {
        log::warn!("SKILLS_API_KEY is not set: every write is refused with 401");
    }
    let server = Server::start(bound, edge(config), Arc::clone(&market) as Arc<dyn http::Service>)
        .map_err(|error| format!("cannot serve: {error}"))?;
    // Set once, here.
    let _ = market.stats.set(server.stats());
    let mut out = io::stdout();
    // Whoever closed our standard output does not want to know.
    let _ = writeln!(out, "listening on {url}").and_then(|()| out.flush());
    keep_house(&market, &stopped);
    server.stop(GRACE);
    log::info!("ended");
    Ok(())
}

fn listen(config: &Config) -> Result<Bound, String> {
    let listener = TcpListener::bind(config.address)
        .map_err(|error| format!("cannot listen on {}: {error}", config.address))?;
    let address = listener.local_addr().map_err(|error| format!("the socket has no address: {error}"))?;
    Ok(Bound { listener, address })
}

fn market(config: &Config, store: Arc<dyn Store>, url: &str) -> Result<Arc<Market>, String> {
    let base_url = config.base_url.clone().unwrap_or_else(|| url.to_owned());
    let catalogue =
        Catalogue::load(store, base_url).map_err(|error| format!("cannot load the catalogue: {error}"))?;
    let limiter = Limiter::new(config.public_rpm, catalogue.store().shares_requests());
    Ok(Arc::new(Market {
        catalogue,
        keys: config.keys.clone(),
        limiter,
        proxies: config.proxies.clone(),
        has_base: config.base_url.is_some(),
        discovery: Discovery::default(),
        moved: Moved::default(),
        table: routes::table(),
        stats: OnceLock::new(),
        limited: AtomicU64::new(0),
        apart: AtomicBool::new(false),
        started: Instant::now(),
    }))
}

fn edge(config: &Config) -> http::Config {
    let policy = Policy {
        // The service stands behind names of its own, and refuses no origin: see the limits and keys.
        hosts: HostRule::Any,
        origins: OriginRule::Reflect(config.origins.clone().into()),
        cache_control: "no-store",
    };
    http::Config { limits: Limits::default(), policy, server: "svc-skills" }
}

/// Follows other writers and forgets what has passed, until told to stop.
fn keep_house(market: &Market, stopped: &crossbeam_channel::Receiver<()>) {
    let (mut swept, mut shared) = (Instant::now(), Instant::now());
    let mut trouble = false;
    while stopped.recv_timeout(FOLLOW_EVERY) == Err(RecvTimeoutError::Timeout) {
        if let Err(error) = market.catalogue.follow() {
            if !trouble {
                log::error!("the catalogue cannot follow the store: {error}");
            }
            trouble = true;
        } else {
            trouble = false;
        }
        if shared.elapsed() >= SHARE_EVERY {
            shared = Instant::now();
            market.share_all();
        }
        if swept.elapsed() >= SWEEP_EVERY {
            swept = Instant::now();
            market.limiter.sweep(market.started.elapsed());
            if let Err(error) = market.catalogue.store().prune(now()) {
                log::warn!("passed install windows could not be forgotten: {error}");
            }
        }
    }
}
