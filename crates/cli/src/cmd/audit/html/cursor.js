// Tells the time under the pointer in every plot.
for (const svg of document.querySelectorAll("svg.plot")) {
  const number = (name) => Number(svg.dataset[name]);
  const line = svg.querySelector(".cross"), text = svg.querySelector(".when");
  const width = svg.viewBox.baseVal.width, height = svg.viewBox.baseVal.height;
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * width;
    const share = (x - number("left")) / (width - number("left") - number("right"));
    const inside = share >= 0 && share <= 1;
    const time = number("from") + share * (number("to") - number("from"));
    text.textContent = inside ? time.toFixed(6) + " s" : "";
    for (const [name, value] of [["x1", x], ["x2", x], ["y1", 10], ["y2", inside ? height - 28 : 10]])
      line.setAttribute(name, value);
    text.setAttribute("x", Math.min(Math.max(x, 110), width - 60));
    text.setAttribute("y", 20);
  });
}
