/** By what the file begins with, not by its name. */
export function imageType(head: Buffer): string | null {
  const starts = (...bytes: number[]) => bytes.every((byte, at) => head[at] === byte);
  if (starts(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a)) return "image/png";
  if (starts(0xff, 0xd8, 0xff)) return "image/jpeg";
  if (head.subarray(0, 4).toString("latin1") === "GIF8") return "image/gif";
  const riff = head.subarray(0, 4).toString("latin1") === "RIFF";
  return riff && head.subarray(8, 12).toString("latin1") === "WEBP" ? "image/webp" : null;
}
