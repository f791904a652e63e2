// A budget for the costs of the cluster, whose nodes are in a resource group of their own. It sends mails and stops nothing.

targetScope = 'subscription'

@description('Name of the budget.')
param name string

@description('Amount of a month in the currency of the subscription.')
param amount int

@description('Addresses that get mails.')
param emails array

@description('First day of the first month, such as 2026-11-01.')
param start string

@description('Names of the resource groups whose costs count.')
param groups array

resource budget 'Microsoft.Consumption/budgets@2024-08-01' = {
  name: name
  properties: {
    category: 'Cost'
    amount: amount
    timeGrain: 'Monthly'
    timePeriod: {
      startDate: start
    }
    filter: {
      dimensions: {
        name: 'ResourceGroupName'
        operator: 'In'
        values: groups
      }
    }
    notifications: {
      spent: {
        enabled: true
        operator: 'GreaterThan'
        threshold: 80
        thresholdType: 'Actual'
        contactEmails: emails
      }
      forecast: {
        enabled: true
        operator: 'GreaterThan'
        threshold: 100
        thresholdType: 'Forecasted'
        contactEmails: emails
      }
    }
  }
}
