export function Engine() {
  return <div />;
}
