// What tests/browser.rs wants to know of a page, measured by the browser that
// shows it and sent to the page around it.
const colour = (text) => {
	const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
	return { r, g, b, a };
};
// Relative luminance and contrast as WCAG 2 defines them.
const luminance = ({ r, g, b }) => {
	const [R, G, B] = [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
	return 0.2126 * R + 0.7152 * G + 0.0722 * B;
};
const contrast = (one, other) => {
	const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
	return (high + 0.05) / (low + 0.05);
};
const ground = (element) => {
	for (; element; element = element.parentElement) {
		const found = colour(getComputedStyle(element).backgroundColor);
		if (found.a > 0) return found;
	}
	return colour("rgb(255, 255, 255)");
};

const texts = () => {
	const found = [];
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walker.nextNode()) {
		const text = walker.currentNode.data.trim();
		const element = walker.currentNode.parentElement;
		if (!text || element.getClientRects().length === 0 || element.closest("script")) continue;
		const style = getComputedStyle(element);
		const shown = colour(element.closest("svg") ? style.fill : style.color);
		found.push({ text, contrast: contrast(shown, ground(element)) });
	}
	return found;
};

const boxes = (svg) => [...svg.querySelectorAll("text")].map((t) => t.getBoundingClientRect());
const cross = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

const plots = () =>
	[...document.querySelectorAll("svg")].map((svg) => {
		const { width, height, left, right } = svg.getBoundingClientRect();
		const labels = boxes(svg);
		const circles = [...svg.querySelectorAll("circle")];
		const box = circles.map((c) => c.getBoundingClientRect());
		const marks = [...svg.querySelectorAll(".series polyline, .series line")].map((e) => getComputedStyle(e).stroke);
		marks.push(...circles.map((c) => getComputedStyle(c).fill));
		return {
			width,
			height,
			points: box.filter((b) => b.width > 0 && b.left >= left && b.right <= right).length,
			circles: circles.length,
			contrast: Math.min(...marks.map((m) => contrast(colour(m), ground(svg)))),
			cut: labels.filter((l) => l.left < left - 0.5 || l.right > right + 0.5).length,
			overlapping: labels.filter((l, i) => labels.some((o, j) => j < i && cross(l, o))).length,
			smallest: Math.min(...labels.map((l) => l.height)),
		};
	});

addEventListener("load", () => {
	parent.postMessage(
		JSON.stringify({
			width: innerWidth,
			scroll: document.documentElement.scrollWidth,
			dark: matchMedia("(prefers-color-scheme: dark)").matches,
			ground: luminance(ground(document.body)),
			resources: performance.getEntriesByType("resource").map((r) => r.name),
			texts: texts(),
			plots: plots(),
		}),
		"*",
	);
});
