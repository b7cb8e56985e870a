//! Drives connections from one thread: closed loop, open loop, and one way.
//!
//! - One thread, one epoll; a single connection in a closed loop is read blockingly instead, which saves a system call per turn.
//! - Every answer is matched and checked; the first that is wrong ends the load with an error.
//! - The time is looked at once per turn, not once per message.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::remoting::command::Command;
use crate::runtime::clock::Clock;

use super::frame::WallClock;
use super::histogram::Outcome;
use super::link::{Link, ReadState};
use super::pace::Pace;

/// Longest wait for answers after the last request.
const DRAIN: Duration = Duration::from_secs(30);
/// Bytes of one-way requests prepared at a time.
const ONEWAY_BYTES: usize = 64 << 10;
/// Longest silent wait, so that the end of the time is noticed.
const TURN: Duration = Duration::from_millis(100);

/// What is sent, and what an answer must be. One for each connection.
pub trait Work {
    /// Appends the request of `slot`. `due_ns`: the moment its latency counts from, since the load's start.
    fn request(&mut self, slot: usize, opaque: i32, due_ns: u64, now: &WallClock, out: &mut Vec<u8>);

    /// Checks the answer to the request of `slot`; how many messages it stands for, and their body bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    fn answer(&mut self, slot: usize, command: &Command<'_>, now_ns: u64) -> Result<Counted, String>;

    /// Messages and body bytes of one request that nobody answers; the last request of a one-way load is made by [`Work::barrier`].
    fn oneway(&self) -> Option<Counted> {
        None
    }

    /// Appends a request whose answer tells that everything before it was read.
    fn barrier(&mut self, opaque: i32, out: &mut Vec<u8>) {
        let _ = (opaque, out);
    }

    /// Whether there is nothing more to ask, so that the load may end before its time.
    fn done(&self) -> bool {
        false
    }
}

/// Messages and body bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub messages: u64,
    pub body_bytes: u64,
}

/// When a load begins, counts and ends.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Start of all times.
    pub start: Instant,
    /// Answers before this are not counted.
    pub warm_up: Duration,
    /// Requests are made until then.
    pub end: Duration,
    /// Requests at most, of this thread.
    pub max_requests: u64,
    /// Open loop: when requests are due.
    pub pace: Option<Pace>,
    /// Wait for the answers of what is under way at the end. Long polls are not worth it.
    pub drain: bool,
}

/// Runs one thread's load.
///
/// # Errors
/// The first wrong answer, a lost connection, or answers that do not come.
pub fn run<W: Work>(streams: Vec<TcpStream>, works: Vec<W>, pipeline: usize, plan: Plan) -> Result<Outcome, String> {
    run_keeping(streams, works, pipeline, plan).map(|(outcome, _)| outcome)
}

/// As [`run`]; gives the works back, with what they have noted.
///
/// # Errors
/// As [`run`].
pub fn run_keeping<W: Work>(streams: Vec<TcpStream>, works: Vec<W>, pipeline: usize, plan: Plan) -> Result<(Outcome, Vec<W>), String> {
    let links: Vec<Link> = streams.into_iter().map(|stream| Link::new(stream, pipeline)).collect();
    let mut driver = Driver::new(links, works, plan)?;
    if driver.works.first().is_some_and(|work| work.oneway().is_some()) {
        driver.run_oneway()?
    } else {
        driver.run()?
    }
    Ok((driver.outcome, driver.works))
}

struct Driver<W> {
    links: Vec<Link>,
    works: Vec<W>,
    epoll: OwnedFd,
    /// Links that wait for room to write.
    stuck: Vec<bool>,
    ready: Vec<usize>,
    events: Vec<epoll::Event>,
    single: bool,
    plan: Plan,
    asked: u64,
    next_link: usize,
    now_ns: u64,
    clock: Clock,
    wall: WallClock,
    outcome: Outcome,
    last_answer_ns: u64,
}

impl<W: Work> Driver<W> {
    fn new(links: Vec<Link>, works: Vec<W>, plan: Plan) -> Result<Self, String> {
        let system = |error: rustix::io::Errno| format!("epoll: {error}");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        let single = links.len() == 1 && plan.pace.is_none() && works.iter().all(|work| work.oneway().is_none());
        for (at, link) in links.iter().enumerate() {
            let prepared = if single { link.stream().set_read_timeout(Some(TURN)) } else { link.stream().set_nonblocking(true) };
            prepared.map_err(|error| format!("socket: {error}"))?;
            epoll::add(&epoll, link.stream(), EventData::new_u64(at as u64), EventFlags::IN).map_err(system)?;
        }
        let clock = Clock::System;
        Ok(Self {
            stuck: vec![false; links.len()],
            ready: Vec::with_capacity(links.len()),
            events: Vec::with_capacity(links.len().clamp(1, 1024)),
            wall: WallClock::new(clock.now_ms()),
            clock,
            links,
            works,
            epoll,
            single,
            plan,
            asked: 0,
            next_link: 0,
            now_ns: 0,
            outcome: Outcome::default(),
            last_answer_ns: 0,
        })
    }

    fn look_at_the_time(&mut self) {
        self.now_ns = self.plan.start.elapsed().as_nanos() as u64;
        self.wall = WallClock::new(self.clock.now_ms());
    }

    fn may_ask(&self) -> bool {
        self.asked < self.plan.max_requests && self.now_ns < self.plan.end.as_nanos() as u64 && !self.works.iter().all(Work::done)
    }

    fn under_way(&self) -> usize {
        self.links.iter().map(|link| link.slots.under_way()).sum()
    }

    /// Closed and open loop.
    fn run(&mut self) -> Result<(), String> {
        self.look_at_the_time();
        if self.plan.pace.is_none() {
            for at in 0..self.links.len() {
                self.ask(at)?;
            }
        }
        loop {
            self.look_at_the_time();
            let asking = self.may_ask();
            if !asking && (self.under_way() == 0 || !self.plan.drain || self.works.iter().all(Work::done)) {
                break;
            }
            if self.now_ns > (self.plan.end + DRAIN).as_nanos() as u64 {
                return Err(format!("{} requests were not answered within {} s", self.under_way(), DRAIN.as_secs()));
            }
            if asking {
                self.ask_what_is_due()?;
            }
            self.wait(asking)?;
            self.look_at_the_time();
            for turn in 0..self.ready.len() {
                self.turn(self.ready[turn])?;
            }
        }
        self.outcome.elapsed_ns = self.last_answer_ns.saturating_sub(self.plan.warm_up.as_nanos() as u64);
        Ok(())
    }

    /// Reads what came over a link, and in a closed loop asks anew.
    fn turn(&mut self, at: usize) -> Result<(), String> {
        if self.stuck[at] {
            self.flush(at)?;
        }
        if self.links[at].fill().map_err(|error| lost(&self.links[at], &error))? == ReadState::Some {
            self.now_ns = self.plan.start.elapsed().as_nanos() as u64;
            self.read_answers(at)?;
        }
        if self.plan.pace.is_none() && self.may_ask() { self.ask(at) } else { Ok(()) }
    }

    /// Reads the whole frames that came over a link; how many.
    fn read_answers(&mut self, at: usize) -> Result<usize, String> {
        let (link, work) = (&mut self.links[at], &mut self.works[at]);
        let counts = self.now_ns >= self.plan.warm_up.as_nanos() as u64;
        let mut read = 0;
        while let Some(frame) = link.inbox.next_frame()? {
            let command = Command::parse(frame).map_err(|error| error.to_string())?;
            let (slot, since_ns) = link.slots.end(command.opaque)?;
            let counted = work.answer(slot, &command, self.now_ns)?;
            read += 1;
            self.outcome.all_messages += counted.messages;
            if counts {
                self.outcome.messages += counted.messages;
                self.outcome.body_bytes += counted.body_bytes;
                self.outcome.requests += 1;
                self.outcome.latencies.record(self.now_ns.saturating_sub(since_ns));
                self.last_answer_ns = self.now_ns;
            }
        }
        Ok(read)
    }

    /// Fills the free slots of a link.
    fn ask(&mut self, at: usize) -> Result<(), String> {
        while self.asked < self.plan.max_requests && self.ask_one(at, self.now_ns) {}
        self.flush(at)
    }

    fn ask_one(&mut self, at: usize, due_ns: u64) -> bool {
        let link = &mut self.links[at];
        let Some((slot, opaque)) = link.slots.begin(due_ns) else { return false };
        self.works[at].request(slot, opaque, due_ns, &self.wall, &mut link.out);
        self.asked += 1;
        true
    }

    /// Open loop: sends what is due over links with a free slot, in turn.
    fn ask_what_is_due(&mut self) -> Result<(), String> {
        let Some(mut pace) = self.plan.pace else { return Ok(()) };
        while self.asked < self.plan.max_requests {
            let Some(at) = self.link_with_room() else { break };
            let Some(due_ns) = pace.take(self.now_ns) else { break };
            self.ask_one(at, due_ns);
        }
        self.plan.pace = Some(pace);
        for at in 0..self.links.len() {
            if !self.links[at].out.is_empty() && !self.stuck[at] {
                self.flush(at)?;
            }
        }
        Ok(())
    }

    fn link_with_room(&mut self) -> Option<usize> {
        let count = self.links.len();
        let at = (0..count).map(|step| (self.next_link + step) % count).find(|at| self.links[*at].slots.has_free())?;
        self.next_link = (at + 1) % count;
        Some(at)
    }

    fn flush(&mut self, at: usize) -> Result<(), String> {
        let all = self.links[at].flush().map_err(|error| lost(&self.links[at], &error))?;
        if all == self.stuck[at] {
            let flags = if all { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
            epoll::modify(&self.epoll, self.links[at].stream(), EventData::new_u64(at as u64), flags)
                .map_err(|error| format!("epoll: {error}"))?;
            self.stuck[at] = !all;
        }
        Ok(())
    }

    /// Waits for something to read (or room to write), for the next due request, or a turn's time.
    fn wait(&mut self, asking: bool) -> Result<(), String> {
        if self.single {
            self.ready.clear();
            self.ready.push(0); // its read blocks
            return Ok(());
        }
        let due = self.plan.pace.as_ref().filter(|_| asking && self.links.iter().any(|link| link.slots.has_free()));
        let timeout = due.map_or(TURN, |pace| Duration::from_nanos(pace.next_ns().saturating_sub(self.now_ns)).min(TURN));
        if due.is_some() {
            // epoll_wait counts in milliseconds, ppoll in nanoseconds; an epoll is readable when it has events.
            let fine = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
            let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
            interrupted_is_nothing(rustix::event::poll(&mut fds, Some(&fine)))?;
        }
        let coarse = if due.is_some() { Duration::ZERO } else { timeout };
        let coarse = Timespec { tv_sec: coarse.as_secs() as i64, tv_nsec: i64::from(coarse.subsec_nanos()) };
        self.events.clear();
        interrupted_is_nothing(epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&coarse)))?;
        self.ready.clear();
        self.ready.extend(self.events.iter().map(|event| { event.data }.u64() as usize));
        Ok(())
    }

    /// One way: writes as fast as the sockets take it, then waits until every link's barrier was answered.
    fn run_oneway(&mut self) -> Result<(), String> {
        let mut barriers = 0;
        let mut written = Outcome::default();
        for at in 0..self.links.len() {
            let flags = EventFlags::IN | EventFlags::OUT;
            epoll::modify(&self.epoll, self.links[at].stream(), EventData::new_u64(at as u64), flags)
                .map_err(|error| format!("epoll: {error}"))?;
        }
        let warm_up_ns = self.plan.warm_up.as_nanos() as u64;
        let mut fenced = vec![false; self.links.len()];
        while barriers < self.links.len() {
            self.look_at_the_time();
            if self.now_ns > (self.plan.end + DRAIN).as_nanos() as u64 {
                return Err(format!("{} connections did not come to their end within {} s", self.links.len() - barriers, DRAIN.as_secs()));
            }
            self.wait(false)?;
            self.look_at_the_time();
            for turn in 0..self.ready.len() {
                let at = self.ready[turn];
                if self.links[at].flush().map_err(|error| lost(&self.links[at], &error))? && !fenced[at] {
                    fenced[at] = !self.prepare_oneway(at, warm_up_ns, &mut written);
                    self.links[at].flush().map_err(|error| lost(&self.links[at], &error))?;
                }
                if !fenced[at] {
                    continue;
                }
                let wanted = EventFlags::IN | if self.links[at].out.is_empty() { EventFlags::empty() } else { EventFlags::OUT };
                epoll::modify(&self.epoll, self.links[at].stream(), EventData::new_u64(at as u64), wanted)
                    .map_err(|error| format!("epoll: {error}"))?;
                self.links[at].fill().map_err(|error| lost(&self.links[at], &error))?;
                barriers += self.read_answers(at)?;
            }
        }
        self.look_at_the_time();
        self.outcome = Outcome { elapsed_ns: self.now_ns.saturating_sub(warm_up_ns), ..written };
        Ok(())
    }

    /// Prepares the next one-way requests of a link, or its barrier when it is to end; whether more follow.
    fn prepare_oneway(&mut self, at: usize, warm_up_ns: u64, written: &mut Outcome) -> bool {
        let counted = self.works[at].oneway().unwrap_or_default();
        if !self.may_ask() {
            let link = &mut self.links[at];
            if let Some((_, opaque)) = link.slots.begin(self.now_ns) {
                self.works[at].barrier(opaque, &mut link.out);
            }
            return false;
        }
        while self.links[at].out.len() < ONEWAY_BYTES && self.asked < self.plan.max_requests {
            let link = &mut self.links[at];
            self.works[at].request(0, super::frame::FIRST_OPAQUE, self.now_ns, &self.wall, &mut link.out);
            self.asked += 1;
            written.all_messages += counted.messages;
            if self.now_ns >= warm_up_ns {
                written.messages += counted.messages;
                written.body_bytes += counted.body_bytes;
                written.requests += 1;
            }
        }
        true
    }
}

fn lost(link: &Link, error: &std::io::Error) -> String {
    let peer = link.stream().peer_addr().map_or_else(|_| "the broker".to_owned(), |peer| peer.to_string());
    format!("connection to {peer} is lost with {} requests under way: {error}", link.slots.under_way())
}

fn interrupted_is_nothing<T>(result: rustix::io::Result<T>) -> Result<(), String> {
    match result {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(format!("waiting for sockets: {error}")),
    }
}
