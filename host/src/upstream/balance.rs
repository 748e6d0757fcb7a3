//! Which target is next.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::config::Balance;

/// How many requests a target has in hand, from all workers. On a cache line of
/// its own: workers write it for every request.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct InFlight(AtomicU32);

impl InFlight {
    pub fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn end(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Chooses among targets, which it knows by their place.
pub struct Balancer {
    balance: Balance,
    seats: Vec<Seat>,
}

struct Seat {
    weight: u32,
    in_flight: Arc<InFlight>,
    /// What the target is owed: it gains its weight with each turn, and the one
    /// with the most pays the sum of all weights for being chosen.
    credit: Cell<i64>,
}

impl Balancer {
    /// Weights are at least 1.
    pub fn new(balance: Balance, targets: impl Iterator<Item = (u32, Arc<InFlight>)>) -> Self {
        let seats = targets.map(|(weight, in_flight)| Seat { weight, in_flight, credit: Cell::new(0) }).collect();
        Self { balance, seats }
    }

    /// The next target's place, none of `except`; `None` if no other is left.
    pub fn choose(&self, except: &[usize]) -> Option<usize> {
        if self.seats.len() == 1 {
            return except.is_empty().then_some(0);
        }
        match self.balance {
            Balance::RoundRobin => self.take_turn(|place, _| !except.contains(&place)),
            Balance::LeastRequests => {
                let left = || self.seats.iter().enumerate().filter(|(place, _)| !except.contains(place));
                let (requests, weight) = left()
                    .map(|(_, seat)| (u64::from(seat.in_flight.count()), u64::from(seat.weight)))
                    .min_by(|one, other| (one.0 * other.1).cmp(&(other.0 * one.1)))?;
                // A second look may find other counts, as workers go on
                // meanwhile: then nobody is as idle as that any more.
                self.take_turn(|place, seat| {
                    !except.contains(&place)
                        && u64::from(seat.in_flight.count()) * weight <= requests * u64::from(seat.weight)
                })
                .or_else(|| left().next().map(|(place, _)| place))
            }
        }
    }

    /// Smooth weighted turns among those who take part.
    fn take_turn(&self, takes_part: impl Fn(usize, &Seat) -> bool) -> Option<usize> {
        let mut sum = 0;
        let mut chosen: Option<(usize, &Seat)> = None;
        for (place, seat) in self.seats.iter().enumerate() {
            if !takes_part(place, seat) {
                continue;
            }
            let weight = i64::from(seat.weight);
            sum += weight;
            seat.credit.set(seat.credit.get() + weight);
            if chosen.is_none_or(|(_, best)| seat.credit.get() > best.credit.get()) {
                chosen = Some((place, seat));
            }
        }
        let (place, seat) = chosen?;
        seat.credit.set(seat.credit.get() - sum);
        Some(place)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn balancer(balance: Balance, weights: &[u32]) -> Balancer {
        Balancer::new(balance, weights.iter().map(|weight| (*weight, Arc::default())))
    }

    /// What `choices` turns give each target.
    fn spread(balancer: &Balancer, choices: usize) -> Vec<usize> {
        let mut hits = vec![0; balancer.seats.len()];
        for _ in 0..choices {
            hits[balancer.choose(&[]).unwrap()] += 1;
        }
        hits
    }

    #[test]
    fn any_run_of_all_weights_hits_them_exactly() {
        for weights in [&[1, 1][..], &[5, 1, 1], &[2, 3, 7, 1], &[1, 1_000]] {
            let sum = weights.iter().sum::<u32>() as usize;
            let expected: Vec<usize> = weights.iter().map(|weight| *weight as usize).collect();
            for skipped in 0..sum.min(20) {
                let balancer = balancer(Balance::RoundRobin, weights);
                spread(&balancer, skipped);
                assert_eq!(spread(&balancer, sum), expected, "after {skipped}");
            }
        }
    }

    #[test]
    fn heavy_targets_are_not_hit_in_a_row() {
        let balancer = balancer(Balance::RoundRobin, &[5, 1, 1]);
        let order: Vec<usize> = (0..7).map(|_| balancer.choose(&[]).unwrap()).collect();
        assert_eq!(order, [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn the_excepted_are_left_out() {
        for balance in [Balance::RoundRobin, Balance::LeastRequests] {
            let three = balancer(balance, &[9, 1, 1]);
            let mut rest = [three.choose(&[0]).unwrap(), three.choose(&[0]).unwrap()];
            rest.sort_unstable();
            assert_eq!(rest, [1, 2]);
            assert_eq!(three.choose(&[2, 0]), Some(1));
            assert_eq!(three.choose(&[0, 1, 2]), None);
            let one = balancer(balance, &[1]);
            assert_eq!(one.choose(&[]), Some(0));
            assert_eq!(one.choose(&[0]), None);
        }
    }

    #[test]
    fn least_requests_for_the_weight() {
        let balancer = balancer(Balance::LeastRequests, &[2, 1]);
        let (heavy, light) = (&balancer.seats[0].in_flight, &balancer.seats[1].in_flight);
        light.begin();
        heavy.begin();
        assert_eq!(balancer.choose(&[]), Some(0), "1/2 < 1/1");
        heavy.begin();
        heavy.begin();
        assert_eq!(balancer.choose(&[]), Some(1), "1/1 < 3/2");
        light.end();
        assert_eq!(balancer.choose(&[]), Some(1), "0/1 < 3/2");
    }

    #[test]
    fn idle_targets_take_turns_by_weight() {
        let balancer = balancer(Balance::LeastRequests, &[3, 1]);
        assert_eq!(spread(&balancer, 8), [6, 2]);
    }

    #[test]
    fn requests_held_end_up_by_weight() {
        let balancer = balancer(Balance::LeastRequests, &[3, 2, 1]);
        for _ in 0..60 {
            balancer.seats[balancer.choose(&[]).unwrap()].in_flight.begin();
        }
        let held: Vec<u32> = balancer.seats.iter().map(|seat| seat.in_flight.count()).collect();
        assert_eq!(held, [30, 20, 10]);
    }
}
