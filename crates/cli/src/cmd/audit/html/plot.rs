//! Plots as inline SVG: a time axis, a value axis, curves in a few shapes. Colours are the page's.

use std::fmt::Write;

use super::escape;
use crate::cmd::audit::screen::three;

/// Size of a plot and of what is left free for its labels.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 28.0;

/// How a curve looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// A value for each stretch of time, from the point's time on.
    Steps,
    /// Points joined by lines.
    Line,
    /// Points.
    Dots,
    /// Points that are to be seen.
    Crosses,
}

/// A curve: seconds and values.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    /// Which of the page's colours.
    pub(super) colour: usize,
    pub(super) shape: Shape,
    pub(super) points: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Clone, Debug, Default)]
pub(super) struct Plot {
    pub(super) title: String,
    /// Unit of the values.
    pub(super) unit: &'static str,
    /// Seconds at the left and right edge.
    pub(super) from: f64,
    pub(super) to: f64,
    /// Seconds of a stretch, for [`Shape::Steps`].
    pub(super) width: f64,
    pub(super) curves: Vec<Curve>,
    /// Moments to mark, and what happened.
    pub(super) marks: Vec<(f64, String)>,
}

impl Plot {
    /// The plot with its title and legend; nothing if all its values are 0.
    pub(super) fn figure(&self) -> String {
        let values = || self.curves.iter().flat_map(|curve| &curve.points).map(|point| point.1);
        let most = values().fold(0.0, f64::max);
        if !most.is_finite() || most <= 0.0 {
            return String::new();
        }
        // What is only counted has whole steps.
        let step = nice(most / 4.0).max(if self.unit.is_empty() { 1.0 } else { 0.0 });
        let top = (most / step).ceil() * step;
        let mut svg = String::new();
        let _ = write!(
            svg,
            "<figure><figcaption>{}{}</figcaption>\n<svg class=\"plot\" viewBox=\"0 0 {WIDTH} \
             {HEIGHT}\" data-from=\"{}\" data-to=\"{}\" data-left=\"{LEFT}\" \
             data-right=\"{RIGHT}\" role=\"img\" aria-label=\"{}\">",
            escape(&self.title),
            self.legend(),
            self.from,
            self.to,
            escape(&self.title),
        );
        self.values(&mut svg, top, step);
        self.times(&mut svg);
        for (time, text) in &self.marks {
            let x = self.x(*time);
            let _ = write!(
                svg,
                "<path class=\"mark\" d=\"M{x:.1} {TOP}V{:.1}\"><title>{}</title></path>",
                HEIGHT - BOTTOM,
                escape(text)
            );
        }
        for curve in self.drawn() {
            self.curve(&mut svg, curve, top);
        }
        svg.push_str("<line class=\"cross\"/><text class=\"when\"/></svg></figure>\n");
        svg
    }

    fn legend(&self) -> String {
        let item = |curve: &Curve| {
            format!("<span class=\"key c{}\">{}</span>", curve.colour, escape(&curve.name))
        };
        let mut legend: String = self.drawn().map(item).collect();
        if !self.marks.is_empty() {
            legend.push_str("<span class=\"key note\">frames of findings</span>");
        }
        legend
    }

    /// The curves that have anything but zeros.
    fn drawn(&self) -> impl Iterator<Item = &Curve> {
        self.curves.iter().filter(|curve| curve.points.iter().any(|(_, value)| *value > 0.0))
    }

    fn x(&self, seconds: f64) -> f64 {
        let span = (self.to - self.from).max(1e-9);
        let share = ((seconds - self.from) / span).clamp(0.0, 1.0);
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(value: f64, top: f64) -> f64 {
        HEIGHT - BOTTOM - (value / top).clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn values(&self, svg: &mut String, top: f64, step: f64) {
        let mut value = 0.0;
        while value <= top * 1.001 {
            let y = Self::y(value, top);
            let unit = if value == 0.0 { "" } else { self.unit };
            let (right, at) = (WIDTH - RIGHT, LEFT - 6.0);
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/><text class=\"y\" x=\"{at}\" \
                 y=\"{:.1}\">{} {unit}</text>",
                y + 4.0,
                amount(value)
            );
            value += step;
        }
    }

    fn times(&self, svg: &mut String) {
        let step = nice((self.to - self.from).max(1e-9) / 8.0);
        let mut at = (self.from / step).ceil() * step;
        let (scale, unit) = match step {
            s if s < 1e-6 => (1e9, "ns"),
            s if s < 1e-3 => (1e6, "µs"),
            s if s < 1.0 => (1e3, "ms"),
            _ => (1.0, "s"),
        };
        let bottom = HEIGHT - BOTTOM;
        while at <= self.to + step / 1e3 {
            let x = self.x(at);
            let text = whole(at * scale);
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/><text class=\"x\" \
                 x=\"{x:.1}\" y=\"{:.1}\">{text} {unit}</text>",
                HEIGHT - 8.0
            );
            at += step;
        }
    }

    fn curve(&self, svg: &mut String, curve: &Curve, top: f64) {
        let mut path = String::new();
        let mut before: Option<f64> = None;
        for (time, value) in &curve.points {
            let (x, y) = (self.x(*time), Self::y(*value, top));
            let _ = match curve.shape {
                Shape::Dots => write!(path, "M{x:.1} {y:.1}h0"),
                Shape::Crosses => {
                    write!(path, "M{:.1} {:.1}l6 6m0 -6l-6 6", x - 3.0, y - 3.0)
                }
                Shape::Line if before.is_none() => write!(path, "M{x:.1} {y:.1}"),
                Shape::Line => write!(path, "L{x:.1} {y:.1}"),
                // A level that goes on is not said again.
                Shape::Steps if before == Some(y) => Ok(()),
                Shape::Steps if before.is_none() => write!(path, "M{x:.1} {y:.1}"),
                Shape::Steps => write!(path, "H{x:.1}V{y:.1}"),
            };
            before = Some(y);
        }
        if let (Shape::Steps, Some((time, _))) = (curve.shape, curve.points.last()) {
            let _ = write!(path, "H{:.1}", self.x(time + self.width));
        }
        let shape = match curve.shape {
            Shape::Steps | Shape::Line => "line",
            Shape::Dots => "dots",
            Shape::Crosses => "crosses",
        };
        let _ = write!(svg, "<path class=\"{shape} c{}\" d=\"{path}\"/>", curve.colour);
    }
}

/// The nearest of 1, 2, 5 × 10^n that is not smaller.
fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|n| n * power)
        .find(|n| *n >= value * 0.999)
        .unwrap_or(1.0)
}

/// A value on an axis: `1500000` is `1.5M`.
fn amount(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{}G", three(v / 1e9)),
        v if v >= 1e6 => format!("{}M", three(v / 1e6)),
        v if v >= 1e4 => format!("{}k", three(v / 1e3)),
        v => three(v),
    }
}

/// A number that is whole but for rounding.
fn whole(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(f64, f64)>) -> Plot {
        let curve = Curve { name: "a<b".into(), colour: 1, shape: Shape::Steps, points };
        let title = "x & y".into();
        Plot { title, unit: "Gbit/s", to: 1.0, width: 0.1, curves: vec![curve], ..Plot::default() }
    }

    #[test]
    fn a_plot_has_axes_and_its_curve_stays_inside() {
        let svg = plot(vec![(0.0, 1.0), (0.1, 3.0), (0.2, 3.0), (0.9, 0.0)]).figure();
        assert!(svg.contains("x &amp; y") && svg.contains("a&lt;b"), "{svg}");
        assert!(svg.contains("d=\"M92.0 118.0H177.6V10.0H862.4V172.0H948.0\""), "{svg}");
        assert!(svg.contains(">3 Gbit/s</text>") && svg.contains(">800 ms</text>"), "{svg}");
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert_eq!(plot(Vec::new()).figure(), "");
        assert_eq!(plot(vec![(0.0, 0.0)]).figure(), "");
        assert_eq!(plot(vec![(0.0, f64::NAN)]).figure(), "");
        assert_eq!(plot(vec![(0.0, f64::INFINITY)]).figure(), "");
        let point = Plot { to: 0.0, ..plot(vec![(0.0, 1e-30)]) };
        assert!(point.figure().contains("<svg"));
    }

    #[test]
    fn steps_of_axes_are_round() {
        assert_eq!([nice(0.03), nice(1.0), nice(2.1), nice(70.0)], [0.05, 1.0, 5.0, 100.0]);
        assert_eq!(
            (amount(1_500_000.0), amount(20_000.0), amount(0.5)),
            ("1.5M".into(), "20k".into(), "0.5".into())
        );
    }
}
