// The exported file: the incident lies in the page itself.
'use strict';

const incident = JSON.parse(document.getElementById('incident').textContent);
document.title = `${incident.id}: ${plain(causeName(incident.cause))} · Brink`;
document.getElementById('tools').append(themeButton());
document.getElementById('main').append(incidentView(incident));
