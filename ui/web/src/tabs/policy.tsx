export function Policy() {
  return <div />;
}
