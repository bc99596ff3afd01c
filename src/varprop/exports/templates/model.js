{% if not page %}
/* {{ title }}
 *
 * Made by varprop {{ version }}. An ES module without dependencies:
 *
 *     import { predict, interval } from "./{{ file }}";
 *     const found = predict({ {{ example }} });   // or an array, in the order of `columns`
 *
 * A number may be {% if impute %}null where it is missing; {% endif %}a category is the name of its level{% if impute %}, null where the cell is missing and
 * the training data had missing ones{% endif %}. What the model does not take is a RangeError.
 */
{% endif %}

/** Columns in their order, with the levels of categories; targets; names of classes. */
export const columns = {{ columns }};
export const targets = {{ targets }};
export const classes = {{ classes }};

const SHIFT = {{ shift }}, SCALE = {{ scale }};
const Y_SHIFT = {{ y_shift }}, Y_SCALE = {{ y_scale }};
const SHARE = {{ shares }};
const POWER = {{ powers }};
const IMPUTE = {{ impute }}, SOURCES = {{ sources }}, WIDTH = {{ width }}, MOMENTS = {{ moments }};

/* The model's numbers, arrays in base64. */
const NUMBERS = Float64Array.from([
{% for kept, packed in numbers %}
  [{{ kept }}, "{{ packed }}"],
{% endfor %}
].flatMap(([Kept, text]) => Array.from(new Kept(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer))));

const square = (a) => a * a;
{% for body in bodies %}
const f{{ loop.index0 }} = (() => {
{% for line in body.arrays %}
  {{ line }}
{% endfor %}
  return (c, x, {{ "x_var, " if body.uncertain }}out) => {
{% for line in body.lines %}
    {{ line }}
{% endfor %}
  };
})();
{% endfor %}

/* Of every part of the mixture its function and where its numbers begin, for known inputs and for uncertain ones. */
const CALLS = [
{% for call in calls %}
  [f{{ call.body }}, NUMBERS.subarray({{ call.begin }}), {{ call.out }}{% if call.other is not none %}, f{{ call.other }}, NUMBERS.subarray({{ call.other_begin }}){% endif %}],
{% endfor %}
];
const X = new Float64Array(SHIFT.length), X_VAR = new Float64Array(SHIFT.length), OUT = new Float64Array(WIDTH * SHARE.length);

/** The prediction of a row: {mean, std, m, s, parts}, arrays by target, or {probability, aleatoric}. */
export function predict(row) {
  let i = 0, missing = false;
  columns.forEach((column, j) => {
    let value = Array.isArray(row) ? row[j] : row[column.name];
    if (value === undefined || (typeof value === "number" && Number.isNaN(value))) value = null;
    if (column.levels) {
      const code = column.levels.indexOf(value === null ? null : String(value));
      if (code < 0) throw new RangeError(`${column.name} is ${value === null ? "missing" : JSON.stringify(value)}, which the training data did not have`);
      column.levels.forEach((level, k) => { X[i] = (Number(k === code) - SHIFT[i]) / SCALE[i]; X_VAR[i++] = 0; });
      return;
    }
    if (value === null && !IMPUTE) throw new RangeError(`${column.name} is missing`);
    if (value !== null && !(typeof value === "number" && Number.isFinite(value))) throw new RangeError(`${column.name} is ${JSON.stringify(value)}, no number`);
    missing = missing || value === null;
    X[i] = ((value === null ? column.mean : value) - SHIFT[i]) / SCALE[i];
    X_VAR[i] = value === null ? column.variance / square(SCALE[i]) : 0;
    i++;
  });
  CALLS.forEach(([known, numbers, at, uncertain, others]) => {
    const out = OUT.subarray(at);
    if (missing) uncertain(others, X, X_VAR, out); else known(numbers, X, out);
  });
  const found = classes.length ? probabilities() : mixture();
  if (!Object.values(found).every((part) => [part].flat(2).every(Number.isFinite))) throw new RangeError("the prediction is no finite number: the row lies too far from the training data");
  return found;
}

function probabilities() {
  const probability = classes.map(() => 0);
  let aleatoric = 0;
  SHARE.forEach((share, i) => {
    classes.forEach((name, k) => { probability[k] += share * OUT[WIDTH * i + k]; });
    aleatoric += share * OUT[WIDTH * i + classes.length];
  });
  return { probability, aleatoric };
}

function mixture() {
  const d = targets.length, found = { mean: [], std: [], m: [], s: [], parts: [] };
  for (let t = 0; t < d; t++) {
    let mean = 0, own = 0, apart = 0;
    const more = (SOURCES ? ["noise", ...SOURCES] : []).map((name, i) => SHARE.reduce((sum, share, k) => sum + share * OUT[WIDTH * k + (2 + i) * d + t], 0));
    SHARE.forEach((share, k) => { mean += share * OUT[WIDTH * k + MOMENTS * d + t]; });
    SHARE.forEach((share, k) => {
      const at = WIDTH * k + MOMENTS * d + t;
      own += share * OUT[at + d];
      apart += share * square(OUT[at] - mean);
    });
    const parts = SOURCES ? [...more.slice(1), apart, more[0]] : [own, apart];
    found.parts.push(parts.map((part) => part * square(Y_SCALE[t])));
    found.mean.push(mean * Y_SCALE[t] + Y_SHIFT[t]);
    found.std.push(Math.sqrt(own + apart) * Y_SCALE[t]);
    found.m.push(SHARE.map((share, k) => OUT[WIDTH * k + t]));
    found.s.push(SHARE.map((share, k) => Math.sqrt(OUT[WIDTH * k + d + t])));
  }
  return found;
}

/* Coefficients of Mills's ratio, as `varprop.moments.constants` has them. */
const MILLS_R = {{ mills_r }}, MILLS_D = {{ mills_d }};
function tail(z) { // P(Z > z)
  const x = Math.min(Math.abs(z), 40);
  const horner = (list) => list.reduceRight((sum, c) => sum * x + c, 0);
  const far = horner(MILLS_R) / horner(MILLS_D) * Math.exp(-0.5 * x * x) * {{ bell }};
  return z > 0 ? far : 1 - far;
}

/* Where target t stands on the scale on which component k is Gaussian, and the slope by the target. */
function scaled(k, t, y) {
  const u = (y - Y_SHIFT[t]) / Y_SCALE[t];
  if (!POWER || POWER[k][t] === 1) return [u, 1 / Y_SCALE[t]];
  const p = u >= 0 ? POWER[k][t] : 2 - POWER[k][t], l = Math.log1p(Math.abs(u)), x = p * l;
  const z = x === 0 ? l : l * (Math.expm1(x) / x);
  return [u < 0 ? -z : z, Math.exp((p - 1) * l) / Y_SCALE[t]];
}

/* P(Y <= y), or P(Y > y) if upper, and the density. */
function tailAndDensity(found, t, y, upper) {
  let sum = 0, density = 0;
  for (let k = 0; k < SHARE.length; k++) {
    const [at, slope] = scaled(k, t, y), s = found.s[t][k], d = at - found.m[t][k];
    if (s > 0) {
      sum += SHARE[k] * tail(upper ? d / s : -d / s);
      density += SHARE[k] * Math.exp(-0.5 * square(d / s)) / s * {{ bell }} * slope;
    } else if (upper ? d < 0 : d >= 0) sum += SHARE[k];
  }
  return [sum, density];
}

/** P(Y <= y) of target t (0 is the first), and its density. */
export const cdf = (found, y, t = 0) => tailAndDensity(found, t, y, false)[0];
export const density = (found, y, t = 0) => tailAndDensity(found, t, y, false)[1];

/** The y with P(Y <= y) = alpha: Newton's steps inside a bracket, halves where they leave it. */
export function quantile(found, alpha, t = 0) {
  if (!(alpha > 0 && alpha < 1)) return NaN;
  const upper = alpha >= 0.5, a = upper ? 1 - alpha : alpha; // the smaller tail, whose digits are exact
  const gapAt = (y) => {
    const [sum, slope] = tailAndDensity(found, t, y, upper);
    return [upper ? a - sum : sum - a, slope];
  };
  const mean = found.mean[t], std = found.std[t];
  let y = mean, low = mean, high = mean;
  for (let step = 2 * std; gapAt(low)[0] >= 0 && step < Infinity; step *= 2) low -= step;
  for (let step = 2 * std; gapAt(high)[0] < 0 && step < Infinity; step *= 2) high += step;
  for (let n = 0; n < 200; n++) {
    const [gap, slope] = gapAt(y);
    if (gap === 0) break;
    if (gap < 0) low = y; else high = y;
    let next = y - gap / slope;
    if (!(next > low && next < high) || n > 20) next = 0.5 * low + 0.5 * high;
    if (next === y || Math.abs(next - y) <= 1e-15 * std) return next;
    y = next;
  }
  return y;
}

/** Where the variance of target t comes from: pairs of a name and a variance, as Python's budgets have them. */
export const budget = (found, t = 0) =>
  (SOURCES ? [...SOURCES, "members disagree", "noise"] : ["weights and noise, not told apart", "members disagree"])
    .map((name, i) => [name, found.parts[t][i]]).filter((part) => part[1] > 0);

/** The interval that holds target t with a probability, as much on either side of it. */
export const interval = (found, probability = 0.9, t = 0) =>
  [quantile(found, 0.5 - 0.5 * probability, t), quantile(found, 0.5 + 0.5 * probability, t)];
