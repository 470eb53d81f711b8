//! `sdr-ec-vs-xor`: what the two erasure codes of SDR-RDMA cost and what they survive (§5.2.1, figure 11).

mod encoding;
mod fallback;

use std::num::NonZero;
use std::thread::available_parallelism;

use softnic_codes::{Code, Family};
use softnic_fault_injector::random::Random;
use softnic_isal::Isal;
use softnic_perf::stop;

use super::outcome::{Beside, Bound, Figure, Figures, Goal, Outcome, Table, percent, shown, spread_shown};
use super::paper::Stated;
use super::pool::Progress;
use super::stats::{Spread, ratio};
use super::{Setting, plot};
use crate::chart::{Axis, Chart, Kind, Panel, Point as Dot, Scale, Series, smooth};
use encoding::{Encoder, Work};
use fallback::{Strata, Write};

const K: usize = 32;
const M: usize = 8;
const FAMILIES: [Family; 2] = [Family::Xor, Family::Mds];
const BUFFER: usize = 128 << 20;
const BUFFER_QUICK: usize = 8 << 20;
/// Of what is encoded.
const CHUNK: usize = 64 << 10;
const PACKET: usize = 4 << 10;
const CORES: [usize; 2] = [1, 2];
/// Tries of each run, of which the best counts: the others something else disturbed.
const TRIES: usize = 5;
/// GB/s of data that 400 Gbit/s are.
const LINE: f64 = 50.0;

/// Packets of a chunk: one, as where the paper tells of fallback, and as many as a chunk of 64 KiB has.
const PACKETS: [usize; 2] = [1, CHUNK / PACKET];
const LOSSES: [f64; 12] = [1e-5, 1e-4, 3e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 3e-2, 5e-2, 7e-2, 1e-1];
const LOSSES_QUICK: [f64; 4] = [1e-3, 1e-2, 5e-2, 1e-1];
/// WRITEs of each point and seed.
const WRITES: u32 = 2000;
const WRITES_QUICK: u32 = 100;
/// Sets of losses of each size that the codes are asked about.
const SETS: u32 = 20_000;
const SETS_QUICK: u32 = 2000;

/// Cores that hide encoding at 400 Gbit/s: 4 for XOR, and twice as many for MDS by ISA-L.
const PAPER: [(Family, f64, Stated); 2] = [
    (Family::Xor, 4.0, stated(12.5, "XOR(32, 8), GB/s a core: 4 cores for 400 Gbit/s")),
    (Family::Mds, 8.0, stated(6.25, "MDS(32, 8), GB/s a core: 8 cores for 400 Gbit/s")),
];

const fn stated(value: f64, what: &'static str) -> Stated {
    Stated { place: "5.2.1, Fig. 11", what, value }
}

pub(super) fn run(setting: &Setting) -> Result<Outcome, String> {
    if setting.transports.is_some() {
        return Err(format!("{} has its own contestants: leave --transports out", setting.name));
    }
    let isal = Isal::load();
    let codes = FAMILIES.map(|family| Code::new(family, K, M));
    let codes = codes.into_iter().collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
    let encoded = Encoded::measure(setting, Encoder::all(&codes, isal.as_ref().ok()));
    let fallbacks = Fallbacks::count(setting, [codes[0], codes[1]])?;
    let cores = available_parallelism().map_or(1, NonZero::get);
    let mut figures = encoded.figures();
    figures.rows.extend(fallbacks.rows());
    let mut notes = vec![
        format!("Encoding by {}, {cores} cores. The paper's processor is a Xeon Platinum 8580 at 4 GHz, its XOR OpenMP with AVX-512, its MDS ISA-L 2.31.1. What others do on this machine is in the rates: ratios of one run tell more than they do.", codes[0].kernel()),
        "The formulas of appendix B take the loss of a chunk, here 1 − (1 − p)^N for N packets. By strata: what the code does with each number of lost chunks, weighted by the chance of that number, for what is too rare to be counted.".into(),
    ];
    notes.extend(isal.err().map(|why| format!("ISA-L: {why}.")));
    let mut goals = encoded.goals();
    goals.extend(fallbacks.goals());
    Ok(Outcome {
        what: format!(
            "Parities of {} MiB of data, chunks of 64 KiB, k = {K}, m = {M}, in real time, the best of {TRIES} tries; and how often a WRITE of 128 MiB falls back, {} drawn for each point; {}.",
            encoded.bytes >> 20,
            fallbacks.writes,
            setting.means()
        ),
        tables: [encoded.table()].into_iter().chain(PACKETS.map(|packets| fallbacks.table(packets))).collect(),
        figures,
        chart: Chart {
            panels: vec![encoded.panel(), fallbacks.panel()],
            caption: plot::caption(
                setting,
                "Lines across bars: the paper, on its own processor. Dashed: theory, appendix B of the paper.",
            ),
        },
        goals,
        beside: PAPER.map(|(family, _, stated)| Beside { stated, ours: encoded.ours(family) }).into(),
        notes,
        runs: encoded.done + fallbacks.done,
        of: encoded.of + fallbacks.of,
        ..Outcome::default()
    })
}

const COLUMNS: [&str; 12] = [
    "part",
    "code",
    "chunk",
    "cores",
    "gigabytes_per_second_core",
    "deviation",
    "cores_for_400_gbps",
    "loss",
    "writes",
    "fallback",
    "formula",
    "by_strata",
];

/// What encoding came to.
struct Encoded {
    bytes: usize,
    encoders: Vec<Encoder>,
    /// GB/s a core, by encoder, and by [`CORES`].
    rates: Vec<[Option<Spread>; 2]>,
    done: usize,
    of: usize,
}

impl Encoded {
    /// All in turn, so that what else the machine does hits all of them.
    fn measure(setting: &Setting, encoders: Vec<Encoder>) -> Encoded {
        let bytes = if setting.quick { BUFFER_QUICK } else { BUFFER };
        let mut work = Work::new(bytes, K, M, CHUNK);
        let seeds = setting.seeds().len();
        let of = seeds * encoders.len() * CORES.len();
        let mut progress = Progress::new(setting.name, of);
        let mut rates = vec![[const { Vec::new() }; 2]; encoders.len()];
        let mut done = 0;
        for _ in 0..seeds {
            let mut best = vec![[0.0f64; 2]; encoders.len()];
            for _ in 0..TRIES {
                for (encoder, best) in encoders.iter().zip(&mut best) {
                    for (&cores, best) in CORES.iter().zip(best) {
                        if !stop::requested() {
                            *best = best.max(work.rate(encoder, cores) / cores as f64);
                        }
                    }
                }
            }
            if stop::requested() {
                break;
            }
            for (rates, best) in rates.iter_mut().zip(&best) {
                rates.iter_mut().zip(best).for_each(|(rates, &best)| rates.push(Some(best)));
            }
            done += encoders.len() * CORES.len();
            progress.tell(done);
        }
        let rates = rates.into_iter().map(|of| of.map(Spread::of)).collect();
        Encoded { bytes, encoders, rates, done, of }
    }

    fn mean(&self, at: usize, cores: usize) -> Option<f64> {
        self.rates[at][cores].map(|spread| spread.mean)
    }

    fn find(&self, family: Family, ours: bool) -> Option<f64> {
        let at = self.encoders.iter().position(|e| e.family() == family && e.is_ours() == ours)?;
        self.mean(at, 0)
    }

    /// On one core.
    fn ours(&self, family: Family) -> Option<f64> {
        self.find(family, true)
    }

    fn table(&self) -> Table {
        let row = |(at, encoder): (usize, &Encoder)| {
            let family = encoder.family();
            let paper = PAPER.iter().find(|(of, ..)| *of == family).map(|&(_, cores, _)| cores);
            vec![
                encoder.name(),
                spread_shown(self.rates[at][0], 2),
                spread_shown(self.rates[at][1], 2),
                shown(ratio(self.mean(at, 0), self.find(family, false)), 2),
                shown(ratio(Some(LINE), self.mean(at, 0)), 1),
                shown(paper, 0),
            ]
        };
        Table {
            title: format!("GB/s of data a core, {} MiB, chunks of 64 KiB, ({K}, {M})", self.bytes >> 20),
            columns: ["code", "1 core", "2 cores, each", "of ISA-L", "cores for 400 Gbit/s", "the paper's"]
                .map(String::from)
                .into(),
            rows: self.encoders.iter().enumerate().map(row).collect(),
        }
    }

    fn figures(&self) -> Figures {
        let row = |(at, encoder): (usize, &Encoder), i: usize| -> Vec<Figure> {
            let mut row: Vec<Figure> = vec!["encode".into(), encoder.name().into()];
            row.extend([CHUNK as f64, CORES[i] as f64].map(Figure::from));
            let spread = self.rates[at][i];
            row.extend([spread.map(|s| s.mean), spread.map(|s| s.deviation)].map(Figure::from));
            row.push(ratio(Some(LINE), spread.map(|s| s.mean)).into());
            row.resize(COLUMNS.len(), Figure::Missing);
            row
        };
        let rows = self.encoders.iter().enumerate().flat_map(|encoder| [0, 1].map(|i| row(encoder, i))).collect();
        Figures { columns: COLUMNS.into(), rows }
    }

    fn panel(&self) -> Panel {
        let bars = |i: usize| {
            let name = if i == 0 { "1 core" } else { "2 cores, each" };
            plot::measured(name, i, self.rates.iter().enumerate().map(move |(at, rates)| (at as f64, rates[i])))
        };
        let line = |(at, encoder): (usize, &Encoder)| {
            let stated = PAPER.iter().find(|(family, ..)| *family == encoder.family() && encoder.is_ours());
            stated.map(|(.., stated)| Dot::exact(at as f64, stated.value))
        };
        let stated = self.encoders.iter().enumerate().filter_map(line).collect();
        let names = self.encoders.iter().map(Encoder::name).collect();
        Panel {
            title: format!("Encoding {} MiB, chunks of 64 KiB, ({K}, {M})", self.bytes >> 20),
            x: Axis::new("Code", Scale::Categories(names)),
            y: Axis::new("GB/s a core", Scale::Linear),
            series: vec![bars(0), bars(1), Series::new("the paper's", Kind::Theory, 0, stated)],
        }
    }

    /// Only where ISA-L is there. Sums of so much data wait for memory, whoever computes them.
    fn goals(&self) -> Vec<Goal> {
        let goal = |(family, least): (Family, f64)| {
            let theirs = self.find(family, false)?;
            Some(Goal {
                what: format!("{family} on one core, of ISA-L's rate"),
                bound: Bound::AtLeast(least),
                measured: ratio(self.ours(family), Some(theirs)),
            })
        };
        [(Family::Mds, 1.5), (Family::Xor, 0.9)].into_iter().filter_map(goal).collect()
    }
}

/// A point of the grid.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    packets: usize,
    loss: f64,
}

impl Point {
    fn write(&self) -> Write {
        Write { k: K, m: M, submessages: BUFFER / (K * self.packets * PACKET), packets: self.packets }
    }
}

/// How often WRITEs fell back.
struct Fallbacks {
    losses: &'static [f64],
    /// Of each point and seed.
    writes: u32,
    /// The part of the WRITEs that did, by [`FAMILIES`].
    of_points: Vec<(Point, [Option<Spread>; 2])>,
    strata: [Strata; 2],
    done: usize,
    of: usize,
}

impl Fallbacks {
    fn count(setting: &Setting, codes: [Code; 2]) -> Result<Fallbacks, String> {
        let (losses, writes, sets) = match setting.quick {
            true => (&LOSSES_QUICK[..], WRITES_QUICK, SETS_QUICK),
            false => (&LOSSES[..], WRITES, SETS),
        };
        let points: Vec<Point> =
            PACKETS.iter().flat_map(|&packets| losses.iter().map(move |&loss| Point { packets, loss })).collect();
        let seeds = setting.seeds();
        let jobs: Vec<(usize, Point, u64)> =
            points.iter().enumerate().flat_map(|(i, &point)| seeds.iter().map(move |&seed| (i, point, seed))).collect();
        let counted = setting.each(jobs, move |&(i, point, seed)| {
            let mut random = Random::stream(seed, i as u64);
            let mut fell = [0u32; 2];
            for _ in 0..writes {
                let now = point.write().draw(&codes, point.loss, &mut random);
                fell = [0, 1].map(|family| fell[family] + u32::from(now[family]));
            }
            Ok(fell.map(|fell| f64::from(fell) / f64::from(writes)))
        })?;
        let of_points = points.iter().zip(counted.chunks(seeds.len())).map(|(&point, parts)| {
            (point, [0, 1].map(|family| Spread::of(parts.iter().map(|part| part.map(|part| part[family])))))
        });
        let mut random = Random::stream(setting.first_seed, u64::MAX);
        Ok(Fallbacks {
            losses,
            writes,
            of_points: of_points.collect(),
            strata: codes.map(|code| Strata::draw(&code, sets, &mut random)),
            done: counted.iter().flatten().count(),
            of: counted.len(),
        })
    }

    fn of(&self, family: usize, point: Point) -> Option<Spread> {
        self.of_points.iter().find(|(of, _)| *of == point).and_then(|(_, parts)| parts[family])
    }

    fn by_strata(&self, family: usize, point: Point) -> f64 {
        point.write().by_strata(&self.strata[family], point.loss)
    }

    /// How far a count lies from the formula, in standard errors of it; one WRITE more or less counts as one.
    fn errors(&self, family: usize, point: Point) -> Option<f64> {
        let spread = self.of(family, point)?;
        let formula = point.write().formula(FAMILIES[family], point.loss);
        let writes = f64::from(self.writes) * spread.seeds as f64;
        let error = (formula * (1.0 - formula) / writes).sqrt().max(1.0 / writes);
        Some((spread.mean - formula).abs() / error)
    }

    fn table(&self, packets: usize) -> Table {
        let small = |value: f64| match value {
            0.0 => "0".into(),
            1e-3.. => format!("{value:.4}"),
            _ => format!("{value:.1e}"),
        };
        let row = |&loss: &f64| {
            let point = Point { packets, loss };
            let mut row = vec![percent(loss)];
            for (i, &family) in FAMILIES.iter().enumerate() {
                row.push(spread_shown(self.of(i, point), 4));
                row.push(small(self.by_strata(i, point)));
                row.push(small(point.write().formula(family, loss)));
            }
            row
        };
        let head = |family: Family| [format!("{family}"), "by strata".into(), "formula".into()];
        Table {
            title: format!("Part of WRITEs of 128 MiB that fall back, chunks of {} KiB", (packets * PACKET) >> 10),
            columns: ["packet loss".into()].into_iter().chain(FAMILIES.into_iter().flat_map(head)).collect(),
            rows: self.losses.iter().map(row).collect(),
        }
    }

    fn rows(&self) -> impl Iterator<Item = Vec<Figure>> {
        let row = |point: Point, i: usize| {
            let mut row: Vec<Figure> = vec!["fallback".into(), FAMILIES[i].to_string().into()];
            row.push(((point.packets * PACKET) as f64).into());
            row.push(Figure::Missing);
            row.push(Figure::Missing);
            let spread = self.of(i, point);
            row.push(spread.map(|s| s.deviation).into());
            row.push(Figure::Missing);
            row.push(point.loss.into());
            row.push(spread.map(|s| f64::from(self.writes) * s.seeds as f64).into());
            row.push(spread.map(|s| s.mean).into());
            row.push(point.write().formula(FAMILIES[i], point.loss).into());
            row.push(self.by_strata(i, point).into());
            row
        };
        self.of_points.iter().flat_map(move |&(point, _)| [0, 1].map(|i| row(point, i)))
    }

    fn panel(&self) -> Panel {
        let mut series = Vec::new();
        for (n, &packets) in PACKETS.iter().enumerate() {
            for (i, &family) in FAMILIES.iter().enumerate() {
                let (hue, name) = (2 * n + i, format!("{family}, chunks of {} KiB", (packets * PACKET) >> 10));
                let at = |loss| Point { packets, loss };
                series.push(plot::measured(&name, hue, self.losses.iter().map(|&loss| (loss, self.of(i, at(loss))))));
                let theory = |loss: f64| Dot::exact(loss, at(loss).write().formula(family, loss));
                let theory = smooth(self.losses).into_iter().map(theory).collect();
                series.push(Series::new(format!("{name}, theory"), Kind::Theory, hue, theory));
            }
        }
        Panel {
            title: format!("WRITEs of 128 MiB that fall back, ({K}, {M})"),
            x: plot::loss_axis(),
            y: Axis::new("Part of WRITEs", Scale::Linear),
            series,
        }
    }

    fn goals(&self) -> Vec<Goal> {
        let farthest = self.of_points.iter().flat_map(|&(point, _)| [0, 1].map(|i| self.errors(i, point)));
        let farthest = farthest.flatten().reduce(f64::max);
        let mut goals = vec![Goal {
            what: "the farthest point from the formula, in standard errors".into(),
            bound: Bound::AtMost(4.0),
            measured: farthest,
        }];
        let expected: [(usize, f64, &[Bound]); 4] = [
            (0, 1e-3, &[Bound::AtLeast(0.07), Bound::AtMost(0.09)]),
            (0, 1e-2, &[Bound::AtLeast(0.99)]),
            (1, 5e-2, &[Bound::AtLeast(0.10), Bound::AtMost(0.14)]),
            (1, 1e-1, &[Bound::AtLeast(0.99)]),
        ];
        for (i, loss, bounds) in expected {
            let measured = self.of(i, Point { packets: 1, loss }).map(|spread| spread.mean);
            goals.extend(bounds.iter().map(|&bound| Goal {
                what: format!("{} falls back at {}", FAMILIES[i], percent(loss)),
                bound,
                measured,
            }));
        }
        goals.push(Goal {
            what: "mds falls back at 1 %, by strata, in 1e-7".into(),
            bound: Bound::AtMost(3.0),
            measured: Some(self.by_strata(1, Point { packets: 1, loss: 1e-2 }) * 1e7),
        });
        goals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_has_all_figures_and_those_that_are_drawn_are_the_same_each_time() {
        let setting = Setting {
            name: "sdr-ec-vs-xor",
            first_seed: 1,
            seeds: None,
            quick: true,
            transports: None,
            threads: 2,
            engines: None,
            round_trips: None,
        };
        let [a, b] = [0, 1].map(|_| run(&setting).unwrap());
        assert!(a.runs == a.of && a.of > 0);
        assert_eq!(a.figures.columns, COLUMNS);
        assert!(a.figures.rows.iter().all(|row| row.len() == COLUMNS.len()));
        let of = |outcome: &Outcome, part: &str| {
            let rows = outcome.figures.rows.iter().filter(|row| row[0] == Figure::from(part));
            rows.cloned().collect::<Vec<_>>()
        };
        assert_eq!(of(&a, "fallback"), of(&b, "fallback"));
        assert_eq!(of(&a, "fallback").len(), PACKETS.len() * LOSSES_QUICK.len() * FAMILIES.len());
        let encoded = of(&a, "encode");
        assert!(encoded.len() == 4 || encoded.len() == 8, "two of ours, and two of ISA-L where it is there");
        assert!(encoded.iter().all(|row| matches!(row[4], Figure::Number(rate) if rate > 0.0)));
        // Rates are the machine's; what is drawn is not.
        let drawn = a.goals.iter().filter(|goal| !goal.what.contains("ISA-L"));
        assert!(drawn.clone().count() == 8 && a.beside.iter().all(|b| b.ours.is_some()));
        let certain = drawn.filter(|goal| goal.what.contains("standard errors") || goal.bound == Bound::AtLeast(0.99));
        certain.for_each(|goal| assert_eq!(goal.is_reached(), Some(true), "{}", goal.line()));
    }
}
