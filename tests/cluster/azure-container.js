// Makes a container in Azurite: node azure-container.js ENDPOINT ACCOUNT KEY CONTAINER
// Signed with an account's shared access signature; Node.js is there, because Azurite needs it.
const [endpoint, account, secret, container] = process.argv.slice(2);
const key = Buffer.from(secret, 'base64');
const fields = {sp: 'rwdlac', ss: 'b', srt: 'sco', st: '', se: '2099-01-01T00:00:00Z', sip: '', spr: 'https,http', sv: '2020-10-02'};
const text = [account, ...Object.values(fields)].join('\n') + '\n';
const sig = require('crypto').createHmac('sha256', key).update(text, 'utf8').digest('base64');
const query = Object.entries({...fields, sig}).filter(([, value]) => value).map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join('&');
fetch(`${endpoint}/${account}/${container}?restype=container&${query}`, {method: 'PUT'}).then(async (answer) => {
  if (answer.status !== 201 && answer.status !== 409) throw new Error(`${answer.status}: ${await answer.text()}`);
}).catch((error) => { console.error(String(error)); process.exit(1); });
