//! The one writer: takes all writes that wait into one transaction, and answers after its commit.

use super::session::Session;
use super::writes::Write;
use super::{StoreError, Written};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use svc_base::time::Time;
use svc_sys::threads::Thread;

/// Writes that may wait.
const QUEUE_WRITES: usize = 1024;
/// Writes of one transaction at most.
const BATCH_WRITES: usize = 256;
/// A write that finds no room in the queue gives up after this.
const QUEUE_WAIT: Duration = Duration::from_secs(2);

/// Called with the commit's outcome.
type Answer = Box<dyn FnOnce(Result<u64, StoreError>) + Send>;
/// Where a write happens: an open transaction and its generation, or why there is none.
type Place<'a, S> = Result<(&'a mut S, u64), StoreError>;
/// Runs inside the transaction; whether it may stay, and whom to tell.
type Job<S> = Box<dyn FnOnce(Place<S>) -> (Result<(), StoreError>, Answer) + Send>;

/// The door to the writer thread.
pub struct Writer<S> {
    // Stands before the thread: its drop lets the thread end.
    jobs: Sender<Job<S>>,
    trouble: Arc<Mutex<Option<String>>>,
    _thread: Thread,
}

impl<S: Session> Writer<S> {
    /// Starts the thread.
    pub fn start(mut session: S) -> Result<Self, StoreError> {
        let (jobs, waiting) = bounded(QUEUE_WRITES);
        let trouble = Arc::new(Mutex::new(None));
        let theirs = Arc::clone(&trouble);
        let thread = Thread::spawn("writer", move || run(&mut session, &waiting, &theirs))?;
        Ok(Self { jobs, trouble, _thread: thread })
    }

    /// Why the last transaction failed, if it did.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Does one write and waits until it is on disk.
    pub fn write<T: Send + 'static>(
        &self,
        now: Time,
        write: impl FnOnce(&mut Write<S>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<Written<T>, StoreError> {
        let (sender, receiver) = bounded(1);
        let job: Job<S> = Box::new(move |place| {
            let done = place.and_then(|(tables, generation)| write(&mut Write { tables, generation, now }));
            let stays = done.as_ref().map(|_| ()).map_err(Clone::clone);
            let answer: Answer = Box::new(move |committed| {
                let answer = done.and_then(|value| committed.map(|generation| Written { value, generation }));
                // The asker waits below, so that this arrives.
                let _ = sender.send(answer);
            });
            (stays, answer)
        });
        self.jobs.send_timeout(job, QUEUE_WAIT).map_err(|_| StoreError::Overloaded)?;
        // The sender is dropped unused only when the write panicked.
        receiver.recv().unwrap_or_else(|_| Err(StoreError::Unavailable("the write met a bug".into())))
    }
}

fn run<S: Session>(session: &mut S, waiting: &Receiver<Job<S>>, trouble: &Mutex<Option<String>>) {
    while let Ok(first) = waiting.recv() {
        // Whatever came during the last commit shares this one: the sync is what costs.
        let batch = std::iter::once(first).chain(waiting.try_iter()).take(BATCH_WRITES);
        let mut answers = Vec::new();
        let committed = transact(session, batch, &mut answers);
        if let Err(error) = &committed {
            log::error!("a transaction of {} writes failed: {error}", answers.len());
        }
        *trouble.lock().unwrap_or_else(PoisonError::into_inner) =
            committed.as_ref().err().map(ToString::to_string);
        // Only now is it known: all of a batch stand or fall with its commit.
        for answer in answers {
            answer(committed.clone());
        }
    }
}

/// One transaction; the generation after it.
fn transact<S: Session>(
    session: &mut S,
    batch: impl Iterator<Item = Job<S>>,
    answers: &mut Vec<Answer>,
) -> Result<u64, StoreError> {
    let before = match session.begin() {
        Ok(generation) => generation,
        Err(error) => {
            session.abandon();
            answers.extend(batch.map(|job| job(Err(error.clone())).1));
            return Err(error);
        }
    };
    let mut stays = false;
    let done = run_jobs(session, before + 1, batch, answers, &mut stays);
    let committed = done.and_then(|()| {
        session.commit(stays.then_some(before + 1))?;
        Ok(if stays { before + 1 } else { before })
    });
    if committed.is_err() {
        session.abandon();
    }
    committed
}

/// Runs each job behind a mark of its own, so that one refusal does not touch the others.
fn run_jobs<S: Session>(
    session: &mut S,
    generation: u64,
    batch: impl Iterator<Item = Job<S>>,
    answers: &mut Vec<Answer>,
    stays: &mut bool,
) -> Result<(), StoreError> {
    for job in batch {
        session.mark()?;
        let rows_before = session.rows_written();
        let outcome = catch_unwind(AssertUnwindSafe(|| job(Ok((&mut *session, generation)))));
        let done = match outcome {
            Ok((done, answer)) => {
                answers.push(answer);
                done
            }
            Err(_) => Err(StoreError::Unavailable("the write panicked".into())),
        };
        // The database may have rolled all of it back, as on a full disk: earlier writes are gone, too.
        if !session.stands() {
            return Err(done.err().unwrap_or(StoreError::Unavailable("the transaction is gone".into())));
        }
        match done {
            Ok(()) => {
                // A write that changed nothing raises no generation, and no catalogue is made for it.
                *stays |= session.rows_written() != rows_before;
                session.keep()?;
            }
            // The next write would meet the same: the batch ends here.
            Err(error @ (StoreError::Full(_) | StoreError::Overloaded)) => return Err(error),
            Err(error) => {
                if let StoreError::Unavailable(text) = error {
                    log::error!("a write failed: {text}");
                }
                session.take_back()?;
            }
        }
    }
    Ok(())
}
