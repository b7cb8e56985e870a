//! Threads for requests that may be slow.
//!
//! - A request is in the queue, on a thread, or refused with SYSTEM_BUSY: its responder sees to the answer in each case.
//! - The queue is bounded in requests and in bytes.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::remoting::code::response;
use crate::remoting::command::{Command, OwnedCommand};

use super::connection::Connection;
use super::dispatch::guarded;
use super::responder::Responder;
use super::service::Lane;

const OVERLOAD: &str = "[OVERLOAD]system busy, start flow control for a while";
const SHUTTING_DOWN: &str = "[OVERLOAD]system busy, the server is shutting down";

/// A bounded queue of requests and the threads that empty it.
pub(super) struct WorkPool {
    state: Mutex<State>,
    changed: Condvar,
    drained: Condvar,
    max_requests: usize,
    max_bytes: usize,
}

struct State {
    jobs: VecDeque<Job>,
    /// Requests in the queue or about to enter it.
    waiting: usize,
    /// Bytes of the requests that wait or run.
    bytes: usize,
    /// Requests on threads.
    busy: usize,
    /// Per thread: somebody called its lane's waker.
    woken: Vec<bool>,
    open: bool,
}

struct Job {
    request: OwnedCommand,
    len: usize,
    responder: Responder,
    _pooled: Pooled,
}

/// Counts a request as its connection's until it is done.
struct Pooled(Connection);

impl Pooled {
    fn new(connection: Connection) -> Self {
        connection.enter_pool();
        Self(connection)
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.0.leave_pool();
    }
}

enum Next {
    Job(Job),
    Woken,
    End,
}

impl WorkPool {
    pub(super) fn new(threads: usize, max_requests: usize, max_bytes: usize) -> Self {
        let state = State { jobs: VecDeque::new(), waiting: 0, bytes: 0, busy: 0, woken: vec![false; threads], open: true };
        Self { state: Mutex::new(state), changed: Condvar::new(), drained: Condvar::new(), max_requests, max_bytes }
    }

    /// Queues a request, or answers SYSTEM_BUSY.
    pub(super) fn submit(&self, request: &Command<'_>, responder: Responder) {
        let len = request.frame.len();
        if let Err(remark) = self.reserve(len) {
            return responder.error(response::SYSTEM_BUSY, &remark);
        }
        let pooled = Pooled::new(responder.connection().clone());
        match OwnedCommand::new(request.frame) {
            Ok(request) => self.push(Job { request, len, responder, _pooled: pooled }),
            Err(error) => {
                self.unreserve(len);
                responder.error(response::SYSTEM_ERROR, &format!("the request cannot be kept: {error}"));
            }
        }
    }

    /// Requests that wait.
    pub(super) fn len(&self) -> usize {
        self.state.lock().waiting
    }

    /// Makes a thread call its lane.
    pub(super) fn wake(&self, thread: usize) {
        self.state.lock().woken[thread] = true;
        self.changed.notify_all();
    }

    /// One thread's life: ends when the pool is closed.
    pub(super) fn run(&self, thread: usize, mut lane: Box<dyn Lane>) {
        loop {
            match self.next(thread) {
                Next::Job(job) => {
                    let len = job.len;
                    work(&mut *lane, job);
                    self.done(len);
                }
                Next::Woken => guarded("the lane of a work thread", || lane.woken()),
                Next::End => return,
            }
        }
    }

    /// Waits until no request waits or runs; `false` when that took too long.
    pub(super) fn wait_drained(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        while state.waiting + state.busy > 0 {
            if self.drained.wait_until(&mut state, until).timed_out() {
                return state.waiting + state.busy == 0;
            }
        }
        true
    }

    /// Takes no more requests; those that still wait are answered SYSTEM_BUSY, the threads end.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.open = false;
        let left = std::mem::take(&mut state.jobs);
        drop(state);
        self.changed.notify_all();
        for job in left {
            self.unreserve(job.len);
            job.responder.error(response::SYSTEM_BUSY, SHUTTING_DOWN);
        }
    }

    fn reserve(&self, len: usize) -> Result<(), String> {
        let mut state = self.state.lock();
        if !state.open {
            return Err(SHUTTING_DOWN.to_owned());
        }
        if state.waiting >= self.max_requests {
            return Err(format!("{OVERLOAD}: {} requests wait, limit workQueueCapacity", state.waiting));
        }
        if state.bytes + len > self.max_bytes {
            return Err(format!("{OVERLOAD}: {} bytes of requests wait, limit {}", state.bytes, self.max_bytes));
        }
        state.waiting += 1;
        state.bytes += len;
        Ok(())
    }

    fn unreserve(&self, len: usize) {
        let mut state = self.state.lock();
        state.waiting -= 1;
        state.bytes -= len;
        drop(state);
        self.drained.notify_all();
    }

    fn push(&self, job: Job) {
        let mut state = self.state.lock();
        if state.open {
            state.jobs.push_back(job);
            drop(state);
            self.changed.notify_one();
            return;
        }
        drop(state);
        self.unreserve(job.len);
        job.responder.error(response::SYSTEM_BUSY, SHUTTING_DOWN);
    }

    fn next(&self, thread: usize) -> Next {
        let mut state = self.state.lock();
        loop {
            if std::mem::take(&mut state.woken[thread]) {
                return Next::Woken;
            }
            if let Some(job) = state.jobs.pop_front() {
                state.waiting -= 1;
                state.busy += 1;
                return Next::Job(job);
            }
            if !state.open {
                return Next::End;
            }
            self.changed.wait(&mut state);
        }
    }

    fn done(&self, len: usize) {
        let mut state = self.state.lock();
        state.busy -= 1;
        state.bytes -= len;
        if state.waiting + state.busy == 0 {
            drop(state);
            self.drained.notify_all();
        }
    }
}

fn work(lane: &mut dyn Lane, job: Job) {
    let Job { request, responder, .. } = job; // what counts it as its connection's is dropped at the end
    guarded("a request's handler", || lane.handle(&request.view(), responder));
    guarded("the lane of a work thread", || lane.read_done());
}
