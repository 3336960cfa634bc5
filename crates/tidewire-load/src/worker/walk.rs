//! The way of a user through a script.

use rand::Rng;
use rand::rngs::SmallRng;

use super::kinds::{Condition, Repeat, StepOrder};
use super::messages::unix_us;
use super::script::{Script, Step};
use super::template::{Feed, Values};

/// The position of a user in a script.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScriptState {
    /// The index of its kind.
    kind: usize,
    /// The next step of a round that has begun.
    at: Option<usize>,
    /// How often that step is still sent in a row, once its turn has come.
    left: u32,
    /// The steps of its setup have succeeded.
    is_set_up: bool,
    /// The load is over: only the steps of its teardown are left.
    is_tearing_down: bool,
    /// It has begun them.
    has_begun_teardown: bool,
    /// It has sent all of them that it will send.
    has_ended_teardown: bool,
    /// Captured variables.
    pub(crate) captured: Vec<Vec<u8>>,
    /// The row of each data file.
    pub(crate) rows: Vec<usize>,
}

impl ScriptState {
    /// Whether the user is between two rounds.
    #[inline]
    pub(crate) fn is_between(&self) -> bool {
        self.at.is_none()
    }

    /// The load is over: the next steps are those of the teardown.
    pub(crate) fn begin_teardown(&mut self) {
        self.end_round();
        self.is_tearing_down = true;
    }

    /// Its last step has succeeded.
    pub(crate) fn succeed(&mut self, script: &Script) {
        let setup = &script.kinds[self.kind].setup;
        self.is_set_up |= !self.is_tearing_down && self.at == Some(setup.end);
    }

    /// The user has nothing left to send. True the first time.
    pub(crate) fn end_teardown(&mut self) -> bool {
        !std::mem::replace(&mut self.has_ended_teardown, true)
    }

    /// Ends the round: after a failed step, a journey does not go on.
    pub(crate) fn end_round(&mut self) {
        self.at = None;
        self.left = 0;
    }
}

/// The user for whom a step is chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walker {
    /// Its number over all workers, from 0.
    pub(crate) number: usize,
    /// All users.
    pub(crate) users: usize,
    /// Whether it may begin a round of its own accord.
    pub(crate) may_begin: bool,
}

impl Script {
    /// A user at the start.
    pub(crate) fn state(&self, user: usize) -> ScriptState {
        let row = |feed: &Feed| user % feed.rows.len().max(1);
        ScriptState {
            kind: self.kind_of(user),
            captured: vec![Vec::new(); self.variables.len()],
            rows: self.feeds.iter().map(row).collect(),
            ..ScriptState::default()
        }
    }

    /// The server of a user's first step.
    pub(crate) fn first_target(&self, state: &ScriptState) -> u16 {
        let kind = &self.kinds[state.kind];
        let first = match kind.setup.is_empty() {
            true => kind.steps.start,
            false => kind.setup.start,
        };
        self.steps.get(first).map_or(0, |step| step.target)
    }

    /// The kinds are spread evenly over the users, however many there are: the multiples of the golden ratio.
    fn kind_of(&self, user: usize) -> usize {
        let all: u64 = self.kinds.iter().map(|kind| kind.weight).sum();
        let at = ((user + 1) as f64 * GOLDEN).fract() * all as f64;
        let mut sum = 0;
        let found = self.kinds.iter().position(|kind| {
            sum += kind.weight;
            at < sum as f64
        });
        found.unwrap_or(0)
    }

    /// The user's next step; none if its round is over and it must not begin another one, or if no step of the
    /// round is to be sent.
    #[inline]
    pub(crate) fn pick(
        &self,
        state: &mut ScriptState,
        walker: Walker,
        random: &mut SmallRng,
    ) -> Option<u32> {
        if self.is_single() {
            return walker.may_begin.then_some(0);
        }
        let next = self.go_on(state, walker, random);
        if next.is_some() || !walker.may_begin {
            return next;
        }
        self.begin(state, walker, random)
            .or_else(|| self.go_on(state, walker, random))
    }

    /// Begins a round. A step that is drawn is a round of its own.
    fn begin(&self, state: &mut ScriptState, walker: Walker, random: &mut SmallRng) -> Option<u32> {
        let kind = &self.kinds[state.kind];
        if state.is_tearing_down {
            let has_come = state.is_set_up || kind.setup.is_empty();
            let may_begin = has_come && !std::mem::replace(&mut state.has_begun_teardown, true);
            state.at = may_begin.then_some(kind.teardown.start);
            return None;
        }
        self.next_rows(state, walker.users);
        if !state.is_set_up && !kind.setup.is_empty() {
            state.at = Some(kind.setup.start);
            return None;
        }
        match &kind.order {
            StepOrder::InOrder => {
                state.at = Some(kind.steps.start);
                None
            }
            StepOrder::Weighted(sums) => {
                let drawn = random.random_range(0..sums.last().copied().unwrap_or(1).max(1));
                let step = kind.steps.start + sums.partition_point(|sum| *sum <= drawn);
                Some(step as u32)
            }
        }
    }

    /// The next step of the round that has begun.
    fn go_on(&self, state: &mut ScriptState, walker: Walker, random: &mut SmallRng) -> Option<u32> {
        let kind = &self.kinds[state.kind];
        let end = match state.is_tearing_down {
            true => kind.teardown.end,
            false => kind.steps.end,
        };
        while let Some(at) = state.at {
            // Only a success leads here, because a failure ends the round; the last steps may have been left out.
            let is_set_up = !state.is_tearing_down && at == kind.setup.end;
            state.is_set_up |= is_set_up;
            let is_drawn = kind.order != StepOrder::InOrder;
            if at == end || (is_set_up && is_drawn) {
                state.end_round();
            } else if !self.takes(&self.steps[at], state, walker, random) {
                (state.at, state.left) = (Some(at + 1), 0);
            } else {
                if state.left == 0 {
                    state.at = (at + 1 < end).then_some(at + 1);
                }
                return Some(at as u32);
            }
        }
        None
    }

    /// Whether the user sends this step now, once or once more.
    fn takes(
        &self,
        step: &Step,
        state: &mut ScriptState,
        walker: Walker,
        random: &mut SmallRng,
    ) -> bool {
        let holds = |condition: &Condition, random: &mut SmallRng| {
            condition.holds(&mut Values {
                sequence: 0,
                user: walker.number as u64,
                unix_us: unix_us(),
                random,
                captured: &state.captured,
                feeds: &self.feeds,
                rows: &state.rows,
            })
        };
        let is_first = state.left == 0;
        if is_first
            && let Some(when) = &step.when
            && !holds(when, random)
        {
            return false;
        }
        let times = match &step.repeat {
            Some(Repeat::While(condition)) if !holds(condition, random) => 0,
            Some(Repeat::While(_)) => u32::MAX,
            _ if !is_first => state.left,
            Some(Repeat::Times(times)) => random.random_range(times.clone()),
            None => 1,
        };
        state.left = match times {
            u32::MAX => u32::MAX,
            times => times.saturating_sub(1),
        };
        times > 0
    }

    /// Each user reads the rows of its own share, so that no two users use one row at the same time while
    /// there are enough. A row of a file with unique rows stays with its user.
    fn next_rows(&self, state: &mut ScriptState, users: usize) {
        for (row, feed) in state.rows.iter_mut().zip(&self.feeds) {
            if !feed.is_unique {
                *row = (*row + users) % feed.rows.len().max(1);
            }
        }
    }
}

/// The part of the golden ratio after the point.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::kinds::{Comparison, Kind};
    use crate::worker::script::Encoded;
    use crate::worker::template::{Escape, Names, Template};
    use rand::SeedableRng;

    fn step(name: &str) -> Step {
        Step::of(name, Encoded::Message(Template::default()))
    }

    /// A kind whose first step is `at`, with these numbers of steps in its setup, its rounds and its teardown.
    fn kind(at: usize, [setup, steps, teardown]: [usize; 3]) -> Kind {
        let first = at + setup;
        Kind {
            weight: 1,
            setup: at..first,
            steps: first..first + steps,
            order: StepOrder::InOrder,
            teardown: first + steps..first + steps + teardown,
        }
    }

    fn script(steps: Vec<Step>, kinds: Vec<Kind>) -> Script {
        Script {
            steps,
            kinds,
            feeds: Vec::new(),
            variables: vec!["v".into()],
        }
    }

    fn condition(left: &str, right: Option<(Comparison, &str)>) -> Condition {
        let names = Names {
            captured: vec!["v".into()],
            ..Names::default()
        };
        let template = |text: &str| Template::of(text.as_bytes(), &names, Escape::None).unwrap();
        Condition {
            left: template(left),
            right: right.map(|(comparison, right)| (comparison, template(right))),
        }
    }

    /// One user's way.
    struct Way<'a> {
        script: &'a Script,
        state: ScriptState,
        random: SmallRng,
    }

    impl<'a> Way<'a> {
        fn of(script: &'a Script, user: usize) -> Self {
            Self {
                script,
                state: script.state(user),
                random: SmallRng::seed_from_u64(1),
            }
        }

        fn step(&mut self, may_begin: bool) -> Option<u32> {
            let walker = Walker {
                number: 0,
                users: 2,
                may_begin,
            };
            self.script.pick(&mut self.state, walker, &mut self.random)
        }

        fn steps(&mut self, count: usize) -> Vec<u32> {
            (0..count).filter_map(|_| self.step(true)).collect()
        }
    }

    #[test]
    fn weights_are_kept() {
        let kind = Kind {
            order: StepOrder::Weighted(vec![7, 7, 10]),
            ..kind(0, [0, 3, 0])
        };
        let script = script(vec![step("a"), step("b"), step("c")], vec![kind]);
        let mut counts = [0; 3];
        for step in Way::of(&script, 0).steps(10_000) {
            counts[step as usize] += 1;
        }
        assert!((script.share_of("c") - 0.3).abs() < 1e-9);
        assert_eq!(counts[1], 0, "a weight of 0");
        assert!((6_700..7_300).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn a_journey_goes_round_and_users_share_the_rows() {
        let feed = Feed {
            columns: vec!["n".into()],
            rows: (0..6).map(|n: u8| vec![vec![b'0' + n]]).collect(),
            ..Feed::default()
        };
        let mut script = script(vec![step("a"), step("b")], vec![kind(0, [0, 2, 0])]);
        script.feeds.push(feed);
        let walk = |script: &Script, user: usize| {
            let mut way = Way::of(script, user);
            let steps: Vec<(u32, usize)> = (0..6)
                .map(|_| (way.step(true).unwrap(), way.state.rows[0]))
                .collect();
            steps
        };
        assert_eq!(
            walk(&script, 0),
            [(0, 2), (1, 2), (0, 4), (1, 4), (0, 0), (1, 0)]
        );
        assert_eq!(
            walk(&script, 1),
            [(0, 3), (1, 3), (0, 5), (1, 5), (0, 1), (1, 1)]
        );
        script.feeds[0].is_unique = true;
        assert!(walk(&script, 1).iter().all(|(_, row)| *row == 1));
    }

    #[test]
    fn what_is_done_once_is_done_once_it_has_succeeded() {
        let steps = ["login", "hello", "a", "b", "logout"].map(step).to_vec();
        let script = script(steps, vec![kind(0, [2, 2, 1])]);
        let mut way = Way::of(&script, 0);
        assert_eq!(way.steps(1), [0]);
        // It fails, and is done again.
        way.state.end_round();
        assert_eq!(way.steps(2), [0, 1]);
        way.state.succeed(&script);
        // Another phase begins.
        way.state.end_round();
        assert_eq!(way.steps(5), [2, 3, 2, 3, 2]);
        way.state.begin_teardown();
        assert_eq!(way.steps(3), [4]);
        let mut stranger = Way::of(&script, 1);
        stranger.steps(1);
        stranger.state.begin_teardown();
        assert!(stranger.steps(1).is_empty(), "it never came in");
    }

    #[test]
    fn a_round_begins_only_when_it_may() {
        let steps = ["login", "a", "b"].map(step).to_vec();
        let mut script = script(steps, vec![kind(0, [1, 2, 0])]);
        let mut way = Way::of(&script, 0);
        assert_eq!(way.step(false), None);
        let steps: Vec<Option<u32>> = [true, false, false, false, true, false, false]
            .map(|may_begin| way.step(may_begin))
            .to_vec();
        let expected = [Some(0), Some(1), Some(2), None, Some(1), Some(2), None];
        assert_eq!(steps, expected);
        assert!(way.state.is_between());
        script.kinds[0].order = StepOrder::Weighted(vec![1, 1]);
        let mut way = Way::of(&script, 0);
        assert_eq!(way.step(true), Some(0));
        assert!(!way.state.is_between(), "the setup has not succeeded yet");
        assert_eq!(way.step(false), None);
        assert!(way.state.is_between());
        assert!(way.steps(50).iter().all(|step| [1, 2].contains(step)));
    }

    #[test]
    fn conditions_and_repeats_shape_a_round() {
        let mut steps = ["a", "twice", "pages", "b"].map(step).to_vec();
        steps[0].when = Some(condition("{{v}}", Some((Comparison::Equal, "in"))));
        steps[1].repeat = Some(Repeat::Times(2..=2));
        steps[2].repeat = Some(Repeat::While(condition("{{v}}", None)));
        steps[3].repeat = Some(Repeat::Times(0..=0));
        let script = script(steps, vec![kind(0, [0, 4, 0])]);
        assert!(script.is_journey());
        let mut way = Way::of(&script, 0);
        assert_eq!(way.steps(4), [1, 1, 1, 1], "nothing else holds");
        way.state.captured[0] = b"in".to_vec();
        assert_eq!(way.steps(3), [2, 2, 2], "as long as there is a next page");
        way.state.captured[0].clear();
        assert_eq!(way.step(false), None);
        way.state.captured[0] = b"in".to_vec();
        assert_eq!(way.steps(4), [0, 1, 1, 2]);
    }

    #[test]
    fn a_round_without_a_step_ends() {
        let mut steps = vec![step("a"), step("b")];
        for step in &mut steps {
            step.when = Some(condition("{{v}}", None));
        }
        let script = script(steps, vec![kind(0, [0, 2, 0])]);
        let mut way = Way::of(&script, 0);
        assert_eq!(way.step(true), None);
        assert!(way.state.is_between());
    }

    #[test]
    fn comparisons_are_of_texts_or_of_numbers() {
        let script = script(vec![step("a")], vec![kind(0, [0, 1, 0])]);
        let holds = |left: &str, comparison, right: &str| {
            let mut random = SmallRng::seed_from_u64(1);
            let state = script.state(0);
            condition(left, Some((comparison, right))).holds(&mut Values {
                sequence: 0,
                user: 7,
                unix_us: 0,
                random: &mut random,
                captured: &state.captured,
                feeds: &[],
                rows: &[],
            })
        };
        for (left, comparison, right, expected) in [
            ("{{user}}", Comparison::Equal, "7", true),
            ("{{user}}", Comparison::Equal, "7.0", false),
            ("{{user}}", Comparison::Unequal, "", true),
            ("{{user}}", Comparison::Below, "10", true),
            ("{{user}}", Comparison::AtMost, "7.0", true),
            ("{{user}}", Comparison::Above, "7", false),
            ("{{user}}", Comparison::AtLeast, "-1e3", true),
            ("{{v}}", Comparison::Below, "1", false),
            ("{{rand:1:100}}", Comparison::AtMost, "100", true),
            ("b", Comparison::Above, "a", false),
        ] {
            assert_eq!(holds(left, comparison, right), expected, "{left} {right}");
        }
    }

    #[test]
    fn kinds_have_their_shares_of_any_number_of_users() {
        let kinds = [90, 9, 1].map(|weight| Kind {
            weight,
            ..kind(0, [0, 1, 0])
        });
        let script = script(vec![step("a")], kinds.to_vec());
        for users in [10, 100, 1_000, 50_000] {
            let mut counts = [0.0_f64; 3];
            for user in 0..users {
                counts[script.kind_of(user)] += 1.0;
            }
            for (count, weight) in counts.iter().zip([0.9, 0.09, 0.01]) {
                let wanted = weight * users as f64;
                assert!((count - wanted).abs() <= 2.0, "{counts:?}");
            }
        }
    }
}
