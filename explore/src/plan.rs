//! The order in which faults are tried: breadth first, so that whatever time there is goes to what is different.

use std::collections::{BTreeMap, HashMap};

use crate::candidates::{Class, classes};
use crate::fault::{Family, Fault};

/// Faults in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The faults.
    pub faults: Vec<Fault>,
    /// The class of each, by its number.
    pub classes: Vec<usize>,
    /// How many classes there are.
    pub class_count: usize,
}

impl Plan {
    /// First one fault of each class, families in turn; then the classes' others, spread evenly.
    pub fn new(faults: &[Fault]) -> Plan {
        let mut numbers: HashMap<Class, usize> = HashMap::new();
        let mut members: Vec<(Class, Vec<usize>)> = Vec::new();
        for (place, class) in classes(faults).into_iter().enumerate() {
            let number = *numbers.entry(class).or_insert_with(|| {
                members.push((class, Vec::new()));
                members.len() - 1
            });
            members[number].1.push(place);
        }
        // In a family: what is first of its kind, then the last, then what is between; of others than the first queue pair later.
        let mut of_family: BTreeMap<Family, Vec<usize>> = BTreeMap::new();
        let mut in_order: Vec<usize> = (0..members.len()).collect();
        in_order.sort_by_key(|&number| (!members[number].0.is_first_queue, members[number].0.position));
        in_order.iter().for_each(|&number| of_family.entry(members[number].0.family).or_default().push(number));
        for classes in of_family.values_mut() {
            *classes = in_turn(classes, |number| members[number].0.what.row());
        }
        let mut queues: Vec<std::vec::IntoIter<(usize, usize)>> =
            of_family.into_values().map(|classes| rounds(&classes, &members).into_iter()).collect();
        let mut plan = Plan { class_count: members.len(), ..Plan::default() };
        while plan.faults.len() < faults.len() {
            for queue in &mut queues {
                if let Some((number, place)) = queue.next() {
                    plan.faults.push(faults[place]);
                    plan.classes.push(number);
                }
            }
        }
        plan
    }

    /// How many classes the first so many faults have.
    pub fn classes_of_first(&self, count: usize) -> usize {
        let mut seen = vec![false; self.class_count];
        self.classes.iter().take(count).for_each(|&class| seen[class] = true);
        seen.into_iter().filter(|seen| *seen).count()
    }

    /// The first fault of each class.
    pub fn representatives(&self) -> Vec<Fault> {
        let mut seen = vec![false; self.class_count];
        let first = |&(_, &class): &(&Fault, &usize)| !std::mem::replace(&mut seen[class], true);
        self.faults.iter().zip(&self.classes).filter(first).map(|(fault, _)| *fault).collect()
    }
}

/// Kinds of faults take turns, each in its order.
fn in_turn(classes: &[usize], row: impl Fn(usize) -> &'static str) -> Vec<usize> {
    let mut rows: Vec<(&str, usize)> = Vec::new();
    let mut turn = |&number: &usize| {
        let row = row(number);
        let place = rows.iter().position(|(known, _)| *known == row).unwrap_or_else(|| {
            rows.push((row, 0));
            rows.len() - 1
        });
        rows[place].1 += 1;
        (rows[place].1, place, number)
    };
    let mut turns: Vec<(usize, usize, usize)> = classes.iter().map(&mut turn).collect();
    turns.sort_unstable_by_key(|&(turn, place, _)| (turn, place));
    turns.into_iter().map(|(.., number)| number).collect()
}

/// One of each class, then another one of each that has more: class and place.
fn rounds(classes: &[usize], members: &[(Class, Vec<usize>)]) -> Vec<(usize, usize)> {
    let orders: Vec<(usize, Vec<usize>)> =
        classes.iter().map(|&number| (number, bisected(members[number].1.len()))).collect();
    let most = orders.iter().map(|(_, order)| order.len()).max().unwrap_or(0);
    let mut out = Vec::new();
    for round in 0..most {
        for (number, order) in &orders {
            out.extend(order.get(round).map(|&i| (*number, members[*number].1[i])));
        }
    }
    out
}

/// All numbers below `count`, each as far as can be from those before it: the one in the middle, those of the quarters, and so on.
fn bisected(count: usize) -> Vec<usize> {
    let mut out = Vec::with_capacity(count);
    let mut ranges = std::collections::VecDeque::from([(0, count)]);
    while let Some((begin, end)) = ranges.pop_front() {
        if begin < end {
            let middle = begin + (end - begin) / 2;
            out.push(middle);
            ranges.extend([(begin, middle), (middle + 1, end)]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use softnic_fault_injector::calls::Verb;

    use super::*;
    use crate::actor::learn;
    use crate::candidates::candidates;
    use crate::thing::tests::{call, file, packet};

    fn plan() -> Plan {
        let mut seen = vec![call(Verb::OpenDevice, 0), call(Verb::RegMr, 0)];
        (0..100).for_each(|psn| seen.extend([call(Verb::PostSend, 1), packet(0x04, psn, 1)]));
        let cast = learn(&[vec![file("./x", 1, &seen)]]);
        Plan::new(&candidates(&cast, &Family::ALL))
    }

    #[test]
    fn all_classes_come_before_the_second_of_any_in_their_family() {
        let plan = plan();
        let families: HashSet<Family> = plan.faults.iter().map(Fault::family).collect();
        let first: HashSet<Family> = plan.faults.iter().take(families.len()).map(Fault::family).collect();
        assert_eq!(first, families, "families take turns");
        for family in families {
            let classes = plan.faults.iter().zip(&plan.classes).filter(|(fault, _)| fault.family() == family);
            let classes: Vec<usize> = classes.map(|(_, class)| *class).collect();
            let all: HashSet<usize> = classes.iter().copied().collect();
            let head: HashSet<usize> = classes.iter().take(all.len()).copied().collect();
            assert_eq!(head, all, "{}", family.name());
        }
        assert_eq!(plan.classes_of_first(plan.faults.len()), plan.class_count);
        assert_eq!(plan.representatives().len(), plan.class_count);
    }

    #[test]
    fn kinds_of_faults_take_turns_in_a_family() {
        let rows = ["a", "a", "a", "b", "c", "b"];
        assert_eq!(in_turn(&[0, 1, 2, 3, 4, 5], |number| rows[number]), [0, 3, 4, 1, 5, 2]);
    }

    #[test]
    fn nothing_is_lost_and_nothing_comes_twice() {
        let plan = plan();
        let places: HashSet<String> = plan.faults.iter().map(|fault| format!("{fault:?}")).collect();
        assert_eq!(places.len(), plan.faults.len());
        assert_eq!(plan.faults.len(), plan.classes.len());
        let mut bisected = bisected(11);
        assert_eq!(bisected[..3], [5, 2, 8]);
        bisected.sort_unstable();
        assert_eq!(bisected, (0..11).collect::<Vec<_>>());
    }
}
