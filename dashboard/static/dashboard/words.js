// Times as words, the same as dashboard/present.py writes them. All arguments in seconds or ms.

export function age(seconds) {
  const s = Math.max(0, seconds);
  if (s < 9.95) return `${s.toFixed(1)} s`;
  const whole = Math.floor(s);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

export function left(seconds) {
  const whole = Math.floor(Math.max(0, seconds));
  if (whole === 0) return "now";
  if (whole < 3600) return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
  return age(whole);
}

let zone = "UTC";
const formats = new Map();

function format(options) {
  const key = JSON.stringify(options);
  if (!formats.has(key)) {
    formats.set(key, new Intl.DateTimeFormat("en-GB", { timeZone: zone, hourCycle: "h23", ...options }));
  }
  return formats.get(key);
}

// How clock times are shown: in the person's zone, in UTC, or as ages.
let relative = false;

export function useTimes(mode, own) {
  relative = mode === "age";
  useZone(mode === "utc" ? "UTC" : own);
}

export const areRelative = () => relative;

export function zoneWord(now) {
  if (relative) return "ages";
  return format({ timeZoneName: "short" }).formatToParts(now).find((part) => part.type === "timeZoneName").value;
}

export function useZone(name) {
  try {
    Intl.DateTimeFormat("en-GB", { timeZone: name });
    zone = name;
  } catch {
    zone = "UTC";
  }
  formats.clear();
}

const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
const DAY = { year: "numeric", month: "2-digit", day: "2-digit" };

export function clock(at, now = at) {
  const time = format(TIME).format(at);
  if (format(DAY).format(at) === format(DAY).format(now)) return time;
  if (Math.abs(now - at) < 6.5 * 86400e3) return `${format({ weekday: "short" }).format(at)} ${time}`;
  return format({ day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" })
    .format(at)
    .replace(",", "");
}

export function today(now) {
  return format({ weekday: "short", day: "numeric", month: "short", year: "numeric", ...TIME, timeZoneName: "short" })
    .format(now)
    .replaceAll(",", "");
}

// One time element's text by its form.
export function worded(form, at, now) {
  const rest = (at - now) / 1000;
  if (form === "ago") return age(-rest);
  if (form === "left") return left(rest);
  if (form === "rest") return `${left(rest)} left`;
  if (form === "probe") return rest >= 1 ? `probe in ${rest < 60 ? `${Math.floor(rest)} s` : age(rest)}` : "probe due";
  if (relative) return rest > 0 ? `in ${age(rest)}` : `${age(-rest)} ago`;
  return clock(at, now);
}
