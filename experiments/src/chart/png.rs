//! A chart as PNG, drawn from its SVG.

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

/// Pixels of the picture for each of the SVG, in both directions.
const SCALE: f32 = 2.0;

/// The bytes of a PNG file. Text needs fonts of the machine.
pub(super) fn draw(svg: &str) -> Result<Vec<u8>, String> {
    let mut options = Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_system_fonts();
    if fonts.is_empty() {
        return Err("a PNG needs a font, and this machine has none: install one, as in fonts-dejavu-core".into());
    }
    let tree = Tree::from_str(svg, &options).map_err(|e| format!("the chart cannot be drawn as PNG: {e}"))?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or("the chart is too large for a PNG")?;
    let mut picture = Pixmap::new(size.width(), size.height()).ok_or("the chart is too large for a PNG")?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut picture.as_mut());
    picture.encode_png().map_err(|e| format!("the chart cannot be written as PNG: {e}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_chart_becomes_a_picture_of_twice_its_size_with_a_white_background() {
        let svg = crate::chart::Chart::default().svg();
        let bytes = super::draw(&svg).unwrap();
        let picture = resvg::tiny_skia::Pixmap::decode_png(&bytes).unwrap();
        assert_eq!(picture.width(), 1360);
        let corner = picture.pixel(0, 0).unwrap();
        assert_eq!((corner.red(), corner.green(), corner.blue(), corner.alpha()), (255, 255, 255, 255));
    }
}
