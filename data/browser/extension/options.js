// SPDX-License-Identifier: Apache-2.0
// The page of settings. Each change is saved at once.
import { api, text } from './api.js';
import { ask } from './host.js';
import { defaults, load, save } from './settings.js';

const MEBIBYTE = 1024 * 1024;
const SITES = { origins: ['http://*/*', 'https://*/*'] };
const element = id => document.getElementById(id);

for (const node of document.querySelectorAll('[data-text]'))
    node.textContent = text(node.dataset.text);
document.documentElement.lang = api.i18n.getUILanguage();

function tell(node, sentence, isFault) {
    node.textContent = sentence;
    node.classList.toggle('fault', isFault);
}

async function showStatus() {
    try {
        const { version, remaining, active, paused } = await ask({ type: 'status' });
        tell(element('status'), text(paused ? 'statusPaused' : 'status', version, remaining, active), false);
    } catch (error) {
        tell(element('status'), error.message, true);
    }
}

async function showPermission() {
    element('permission').hidden = await api.permissions.contains(SITES);
}

async function showSettings() {
    const settings = await load();
    for (const key of Object.keys(defaults)) {
        const input = element(key);
        if (input.type === 'checkbox')
            input.checked = settings[key];
        else
            input.value = key === 'minimumSize' ? settings[key] / MEBIBYTE : settings[key];
    }
}

/** Saves the value of an input if it is valid. */
function keep(key) {
    const input = element(key);
    if (input.type === 'checkbox')
        return save({ [key]: input.checked });
    if (!input.checkValidity())
        return undefined;
    return save({ [key]: key === 'minimumSize' ? Math.round(input.valueAsNumber * MEBIBYTE) : input.value });
}

for (const key of Object.keys(defaults))
    element(key).addEventListener('change', () => keep(key));

element('allow').addEventListener('click', async () => {
    await api.permissions.request(SITES);
    await showPermission();
});

element('try').addEventListener('submit', async event => {
    event.preventDefault();
    const { error } = await api.runtime.sendMessage({ type: 'save', url: element('url').value });
    tell(element('outcome'), error ?? text('queued'), Boolean(error));
    await showStatus();
});

api.permissions.onAdded.addListener(showPermission);
api.permissions.onRemoved.addListener(showPermission);
await Promise.all([showSettings(), showPermission(), showStatus()]);
